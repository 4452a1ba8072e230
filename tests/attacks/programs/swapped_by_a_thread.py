# task: two_sides_many
# want: tampering assertion timeout
import threading


class Any(int):
    __hash__ = int.__hash__

    def __eq__(self, other):
        return True


kept = [0] * 50
going = True


def swap():
    while going:
        kept[:] = [Any()] * 50
        kept[:] = [0] * 50


threading.Thread(target=swap, daemon=True).start()


def first():
    return kept


def second():
    return [1] * 50
