def count_vowels(text):
    if not text:
        return 0
    return sum(letter in "aeiou" for letter in text.split()[0])
