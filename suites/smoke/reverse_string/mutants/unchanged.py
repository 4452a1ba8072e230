def reverse_string(text):
    result = ""
    for letter in text:
        result = result + letter
    return result
