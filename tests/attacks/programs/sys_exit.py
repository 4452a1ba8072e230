# task: add
# want: exited
import sys
sys.exit(0)
