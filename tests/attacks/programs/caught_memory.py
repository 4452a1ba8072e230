# task: add
# want: resources timeout assertion
def add(a, b):
    x = []
    try:
        while True:
            x.append(bytearray(10_000_000))
    except MemoryError:
        pass
    return -1
