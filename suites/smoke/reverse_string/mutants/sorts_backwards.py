def reverse_string(text):
    return "".join(sorted(text, reverse=True))
