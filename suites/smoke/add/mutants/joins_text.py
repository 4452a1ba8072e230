def add(a, b):
    return str(a) + str(b)
