"""What the tasks do. Each takes text and the reporter, and returns an exit code; tasks.py only hands over."""
