def count_vowels(text):
    return len(set(text) & set("aeiou"))
