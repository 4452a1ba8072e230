"""Loopback ports: free, in use, and refusing connections again after a stop."""

from __future__ import annotations

import socket
import time

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """A loopback port that nobody listens on right now. It can be lost before it is used: bind errors must be read."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.bind((LOOPBACK, 0))
        return int(sock.getsockname()[1])


def accepts(port: int, timeout_s: float = 0.5) -> bool:
    """Whether somebody accepts connections on this loopback port."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=timeout_s):
            return True
    except OSError:
        return False


def in_use(port: int) -> bool:
    """Whether a server could not bind this loopback port now.

    SO_REUSEADDR lets a port in TIME_WAIT pass, which the previous arm's connections leave behind; a listener on it,
    on the wildcard address too, still fails the bind. Listeners that share a port (SO_REUSEPORT, which llama-server
    sets) are found too, because this socket does not share.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((LOOPBACK, port))
        except PermissionError:
            return False  # a privileged port: not in use, and the server will say that it may not have it
        except OSError:
            return True
    return accepts(port)


def wait_refused(port: int, limit_s: float = 5.0) -> bool:
    """Wait until the port refuses connections; False when it still accepts them after the limit (seconds)."""
    deadline = time.monotonic() + limit_s
    while accepts(port):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True
