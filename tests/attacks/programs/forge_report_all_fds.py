# task: add
# want: tampering exited timeout
import os

for fd in range(3, 256):
    try:
        os.write(fd, b'\0\0\0\x40' + b'test_a passed' * 40)
    except OSError:
        pass


def add(a, b):
    return -1
