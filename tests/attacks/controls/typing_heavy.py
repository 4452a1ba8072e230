# task: add
from __future__ import annotations
from typing import Generic, Protocol, TypeVar, get_type_hints

T = TypeVar('T', int, float)


class Op(Protocol[T]):
    def __call__(self, a: T, b: T) -> T: ...


class Box(Generic[T]):
    value: T


def add(a: int, b: int) -> int:
    get_type_hints(add)
    return a + b
