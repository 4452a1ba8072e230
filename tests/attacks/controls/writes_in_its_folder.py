# task: add
from pathlib import Path


def add(a, b):
    Path('cache.txt').write_text(str(a + b))
    return int(Path('cache.txt').read_text())
