"""A filter in one key, and its rebuild."""
