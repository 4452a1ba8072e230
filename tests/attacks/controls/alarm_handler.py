# task: add
import signal


def handler(number, frame):
    raise TimeoutError


def add(a, b):
    signal.signal(signal.SIGALRM, handler)
    signal.alarm(10)
    try:
        return a + b
    finally:
        signal.alarm(0)
