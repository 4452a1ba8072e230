def maximum(numbers):
    numbers.sort()
    return numbers[-1]
