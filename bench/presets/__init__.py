"""Arms and lineups: read, checked, and written for a file of one's own."""
