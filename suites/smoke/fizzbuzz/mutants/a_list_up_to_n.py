def fizzbuzz(n):
    out = []
    for i in range(1, n + 1):
        word = "Fizz" * (i % 3 == 0) + "Buzz" * (i % 5 == 0)
        out.append(word or str(i))
    return out
