# task: add
import datetime


def add(a, b):
    datetime.datetime.now(datetime.timezone.utc).isoformat()
    return a + b
