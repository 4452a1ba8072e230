"""From an answer to the code in it."""
