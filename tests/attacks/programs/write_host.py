# task: add
# want: import+suspect exception+suspect
open('/etc/passwd', 'a').write('x')


def add(a, b):
    return a + b
