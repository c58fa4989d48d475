"""Faults of filters with several keys."""
