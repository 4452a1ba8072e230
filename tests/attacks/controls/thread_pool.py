# task: add
from concurrent.futures import ThreadPoolExecutor


def add(a, b):
    with ThreadPoolExecutor(4) as pool:
        return pool.submit(lambda: a + b).result()
