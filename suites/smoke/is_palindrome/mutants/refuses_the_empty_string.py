def is_palindrome(text):
    if not text:
        return False
    return text == text[::-1]
