def maximum(numbers):
    once = [n for n in numbers if numbers.count(n) == 1]
    return max(once)
