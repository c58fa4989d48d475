"""Saved filters: the format of a file, and how a filter is read and written as a whole."""
