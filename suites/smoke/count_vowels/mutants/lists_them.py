def count_vowels(text):
    return [letter for letter in text if letter in "aeiou"]
