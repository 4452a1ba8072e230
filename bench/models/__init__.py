"""Model files: found or downloaded, and proved to be the right ones."""
