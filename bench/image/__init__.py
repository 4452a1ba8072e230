"""The pinned llama.cpp image: its source, its build, and the proof of what it is."""
