# task: sleeps
# want: suspect
import time

time.sleep = lambda s: None


def add(a, b):
    return a + b
