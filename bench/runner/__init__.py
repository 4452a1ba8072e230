"""The order in which all of this happens."""
