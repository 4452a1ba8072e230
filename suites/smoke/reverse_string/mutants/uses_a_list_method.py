def reverse_string(text):
    return text.reverse()
