# task: add
space = {}
exec('def add(a, b):\n    return a + b', space)
add = space['add']
