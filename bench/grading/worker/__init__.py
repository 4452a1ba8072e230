"""What runs inside the sandbox: standard library only, sent as text to a bare interpreter."""
