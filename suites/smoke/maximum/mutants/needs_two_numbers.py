def maximum(numbers):
    largest = numbers[0] if numbers[0] > numbers[1] else numbers[1]
    for number in numbers[2:]:
        if number > largest:
            largest = number
    return largest
