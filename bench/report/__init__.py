"""The report, from the views alone. It can be made on a machine that never ran an arm."""
