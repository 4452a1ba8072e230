def is_even(n):
    if n == 0:
        return True
    return not is_even(n - 1)
