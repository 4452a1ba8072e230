def is_palindrome(text):
    for i in range(len(text) // 2):
        if text[i] == text[-1 - i]:
            return True
        return False
    return True
