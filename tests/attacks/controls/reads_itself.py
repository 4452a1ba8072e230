# task: add
import inspect


def add(a, b):
    assert 'def add' in inspect.getsource(add)
    return a + b
