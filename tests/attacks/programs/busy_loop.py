# task: add
# want: timeout
def add(a, b):
    while True:
        pass
