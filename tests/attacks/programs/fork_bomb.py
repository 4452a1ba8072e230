# task: add
# want: resources timeout exited
import os

while True:
    try:
        os.fork()
    except OSError:
        pass
