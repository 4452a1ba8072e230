# task: add
import atexit

atexit.register(print, 'bye')


def add(a, b):
    return a + b
