"""The speed probe, apart from the suite."""
