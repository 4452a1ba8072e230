def factorial(n):
    product = 1
    for k in range(n + 1):
        product *= k
    return product
