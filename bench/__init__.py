"""gguf-bench: find out which local GGUF model to run on your own machine."""

__version__ = "0.1.0"
