# task: add
from functools import lru_cache


@lru_cache(maxsize=None)
def add(a, b):
    return a + b
