# task: add
import copy
import pickle


class P:
    def __init__(self, v):
        self.v = v


def add(a, b):
    return copy.deepcopy(pickle.loads(pickle.dumps(P(a + b)))).v
