# task: add
import functools
import inspect


def logged(f):
    inspect.signature(f)

    @functools.wraps(f)
    def inner(*args, **kwargs):
        return f(*args, **kwargs)

    return inner


@logged
def add(a, b):
    return a + b
