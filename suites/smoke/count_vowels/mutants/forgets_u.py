def count_vowels(text):
    count = 0
    for letter in text:
        if letter in "aeio":
            count += 1
    return count
