def factorial(n):
    total = 0
    for k in range(1, n + 1):
        total += k
    return total
