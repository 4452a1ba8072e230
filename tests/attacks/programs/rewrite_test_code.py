# task: callback
# want: assertion+suspect exception+suspect tampering
def run(f):
    for name, value in list(f.__globals__.items()):
        if name.startswith('test'):
            value.__code__ = (lambda: None).__code__
    return 0
