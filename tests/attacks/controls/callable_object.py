# task: add
class Adder:
    def __call__(self, a, b):
        return a + b


add = Adder()
