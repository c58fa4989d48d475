"""A filter in several layers, and their record."""
