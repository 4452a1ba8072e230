"""What runs inside the sandbox. Standard library only; sent as text to a bare interpreter, so it imports nothing of the bench."""
