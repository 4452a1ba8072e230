def is_palindrome(text):
    return text == reversed(text)
