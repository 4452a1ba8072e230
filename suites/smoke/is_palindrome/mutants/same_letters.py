def is_palindrome(text):
    return sorted(text) == sorted(text[::-1])
