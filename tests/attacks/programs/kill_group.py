# task: add
# want: exited
import os

os.kill(0, 9)
