# task: add
# want: assertion+suspect exception+suspect import+suspect
def add(a, b):
    with open('/proc/self/mem', 'rb') as f:
        f.seek(0)
        return f.read(1)
