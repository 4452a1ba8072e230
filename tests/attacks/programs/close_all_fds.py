# task: add
# want: exited
import os

os.closerange(3, 256)


def add(a, b):
    return -1
