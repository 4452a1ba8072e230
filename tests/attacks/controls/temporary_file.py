# task: add
import tempfile


def add(a, b):
    with tempfile.NamedTemporaryFile('w+') as f:
        f.write(str(a + b))
        f.seek(0)
        return int(f.read())
