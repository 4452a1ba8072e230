def reverse_string(text):
    return " ".join(reversed(text.split()))
