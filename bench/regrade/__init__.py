"""From a stored answer to a verdict: the first time, again, and by a person."""
