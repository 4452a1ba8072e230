def is_even(n):
    if n % 2 == 0:
        return "even"
    return "odd"
