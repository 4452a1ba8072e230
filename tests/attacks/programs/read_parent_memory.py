# task: add
# want: assertion+suspect exception+suspect
import os


def add(a, b):
    for pid in (1, os.getppid()):
        try:
            open(f'/proc/{pid}/mem', 'rb').read(1)
        except OSError:
            continue
        return a + b
    return -1
