def add():
    a = int(input("First number: "))
    b = int(input("Second number: "))
    return a + b
