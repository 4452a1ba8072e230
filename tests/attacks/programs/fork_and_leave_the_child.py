# task: add
# want: exited assertion timeout
import os


def add(a, b):
    if os.fork() == 0:
        return a + b
    os.wait()
    return -1
