# task: add
import pytest


def add(a, b):
    return a + b


@pytest.mark.parametrize('a,b', [(1, 2)])
def test_add(a, b):
    assert add(a, b) == a + b
