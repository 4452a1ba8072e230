"""One request to a server: sent, streamed, timed, with a typed outcome."""
