# task: callback_honest
def run(f):
    return f() + 2
