# task: add
import sys

sys.setrecursionlimit(20000)


def deep(n):
    return 0 if n == 0 else deep(n - 1)


def add(a, b):
    deep(5000)
    return a + b
