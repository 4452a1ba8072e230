"""Suites: read, and made to prove themselves."""
