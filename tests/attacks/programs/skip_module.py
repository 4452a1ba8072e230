# task: add
# want: exited
import pytest

pytest.skip('no', allow_module_level=True)
