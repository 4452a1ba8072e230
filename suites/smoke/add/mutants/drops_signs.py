def add(a, b):
    return abs(a) + abs(b)
