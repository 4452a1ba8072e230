# task: add
# want: suspect exited
import ctypes


def add(a, b):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(a))
    return a + b
