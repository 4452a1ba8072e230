# task: add
import threading


def add(a, b):
    together = threading.Barrier(41)
    out = []

    def work():
        together.wait(3)
        out.append(a + b)

    threads = [threading.Thread(target=work) for _ in range(40)]
    for t in threads:
        t.start()
    together.wait(3)
    for t in threads:
        t.join()
    return out[0]
