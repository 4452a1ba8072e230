def maximum(numbers):
    return numbers.index(max(numbers))
