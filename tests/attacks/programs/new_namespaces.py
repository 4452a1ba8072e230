# task: add
# want: exited+suspect assertion+suspect
import ctypes

libc = ctypes.CDLL(None)
libc.unshare(0x10000000)
libc.mount(b'proc', b'/proc', b'proc', 0, None)
libc.umount(b'/proc')


def add(a, b):
    return -1
