def is_palindrome(text):
    if len(text) < 2:
        return False
    return text == text[::-1]
