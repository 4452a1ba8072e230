# task: add
# want: suspect
import sys

want = []


def tracer(frame, event, arg):
    return tracer


sys.settrace(tracer)


def add(a, b):
    return a + b
