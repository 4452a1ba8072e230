# task: add
# want: exited
import os
os._exit(0)
