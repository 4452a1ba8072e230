def is_palindrome(text):
    return len(text) % 2 == 1 and text == text[::-1]
