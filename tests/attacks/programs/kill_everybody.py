# task: wrong_ok
# want: exited timeout assertion
import os, signal

for _ in range(50):
    try:
        os.kill(-1, signal.SIGKILL)
    except OSError:
        pass


def add(a, b):
    return -1
