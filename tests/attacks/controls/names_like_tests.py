# task: add
def test_a():
    raise RuntimeError


def add(a, b):
    return a + b
