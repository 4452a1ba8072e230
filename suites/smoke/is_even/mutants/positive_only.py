def is_even(n):
    if n < 0:
        return False
    return n % 2 == 0
