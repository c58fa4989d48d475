"""Whole filters: saved, restored, copied, merged, adopted."""
