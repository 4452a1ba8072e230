def reverse_string(text):
    return list(reversed(text))
