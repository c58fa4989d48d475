"""Rebuilding filters while they are in use."""
