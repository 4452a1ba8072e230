# task: add
def add(a, b):
    größe = a + b
    return größe  # ✓
