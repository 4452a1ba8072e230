# task: add
def add(a, b):
    import solution

    return solution.inner(a, b)


def inner(a, b):
    return a + b
