# task: add
class Acc:
    def __init__(self, v):
        self.v = v

    def __eq__(self, other):
        return self.v == other.v


def add(a, b):
    x = Acc(a)
    x.v += b
    assert x == Acc(a + b)
    return x.v
