import math


def factorial(n):
    return round(math.gamma(n + 1.0))
