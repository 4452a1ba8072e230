# task: add
import random

random.seed(1)


def add(a, b):
    random.random()
    return a + b
