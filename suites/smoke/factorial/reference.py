def factorial(n):
    product = 1
    for k in range(2, n + 1):
        product *= k
    return product
