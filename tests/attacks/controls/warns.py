# task: add
import warnings

warnings.warn('deprecated', DeprecationWarning)


def add(a, b):
    warnings.warn('slow')
    return a + b
