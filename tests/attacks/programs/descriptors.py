# task: add
# want: resources exception
import os


def add(a, b):
    keep = []
    while True:
        keep.append(open('/dev/null'))
