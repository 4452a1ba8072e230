# task: add
def add(a, b):
	if a:
		pass
	return a + b
