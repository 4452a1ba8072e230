# task: add
# want: suspect
import os, time

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3):
            os.close(fd)
        time.sleep(600)
    os._exit(0)
os.wait()


def add(a, b):
    return a + b
