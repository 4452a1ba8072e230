# task: add
# want: timeout
import re


def add(a, b):
    return len(re.findall(r'(a+)+$', 'a' * 40 + 'b'))
