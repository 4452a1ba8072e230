# task: add
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    a: int
    b: int

    def total(self):
        return self.a + self.b


def add(a, b):
    return Pair(a, b).total()
