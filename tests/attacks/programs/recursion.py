# task: add
# want: exception
def add(a, b):
    return add(a, b)
