# task: add
# want: resources timeout
import os, time

for _ in range(40):
    if os.fork() == 0:
        x = bytearray(b'x') * 200_000_000
        time.sleep(60)
        os._exit(0)


def add(a, b):
    time.sleep(20)
    return a + b
