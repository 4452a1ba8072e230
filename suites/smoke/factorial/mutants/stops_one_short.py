def factorial(n):
    product = 1
    for k in range(1, n):
        product *= k
    return product
