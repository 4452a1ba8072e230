# task: add
import threading


def add(a, b):
    out = []
    threads = [threading.Thread(target=out.append, args=(a + b,)) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out[0]
