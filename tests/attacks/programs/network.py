# task: add
# want: import+suspect exception+suspect
import socket

socket.create_connection(('192.0.2.1', 80), timeout=1)


def add(a, b):
    return a + b
