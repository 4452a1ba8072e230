# task: add
# want: import+suspect exception+suspect
import socket

socket.getaddrinfo('example.invalid', 80)


def add(a, b):
    return a + b
