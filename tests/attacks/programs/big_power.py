# task: add
# want: timeout resources
def add(a, b):
    return 10 ** (10 ** 9) % 7
