# task: add
import gc


def add(a, b):
    gc.collect()
    return a + b
