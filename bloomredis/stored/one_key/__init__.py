"""A filter in one key."""
