# task: add
# want: import+suspect exception+suspect assertion+suspect
data = open('/etc/shadow').read()


def add(a, b):
    return -1
