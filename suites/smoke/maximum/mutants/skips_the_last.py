def maximum(numbers):
    largest = numbers[0]
    for i in range(len(numbers) - 1):
        if numbers[i] > largest:
            largest = numbers[i]
    return largest
