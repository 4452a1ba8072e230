# task: add
add = lambda a, b: a + b
