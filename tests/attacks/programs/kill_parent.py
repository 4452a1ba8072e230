# task: add
# want: exited assertion+suspect import+suspect
import os

for pid in (os.getppid(), 1, 2, 3):
    if pid:
        try:
            os.kill(pid, 9)
        except OSError:
            pass


def add(a, b):
    return -1
