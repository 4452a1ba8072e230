# task: add
from functools import partial
import operator

add = partial(operator.add)
