"""A filter in several shards, and their record."""
