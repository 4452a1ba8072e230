"""Parquet in, nothing overwritten, and DuckDB over it."""
