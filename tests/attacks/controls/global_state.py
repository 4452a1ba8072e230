# task: add
calls = []


def add(a, b):
    calls.append((a, b))
    return a + b
