# task: add
# want: exited exception resources
import sys

sys.setrecursionlimit(10**8)


class A:
    def __getattr__(self, name):
        return getattr(self, name + 'x')


def add(a, b):
    return A().x
