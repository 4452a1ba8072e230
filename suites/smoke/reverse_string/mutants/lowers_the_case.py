def reverse_string(text):
    return text.lower()[::-1]
