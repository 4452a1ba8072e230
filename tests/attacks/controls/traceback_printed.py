# task: add
import traceback


def add(a, b):
    try:
        raise ValueError('inner')
    except ValueError:
        traceback.print_exc()
        text = traceback.format_exc()
    assert 'inner' in text
    return a + b
