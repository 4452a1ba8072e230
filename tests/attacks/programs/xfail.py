# task: add_pytest
# want: exited assertion exception
import pytest


def add(a, b):
    pytest.xfail('no')
