# task: add
def add(a, b):
    for i in range(10000):
        print('adding', a, b, i)
    return a + b
