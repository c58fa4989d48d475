"""Saved filters: the file format, and reading and writing whole filters."""
