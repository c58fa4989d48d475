"""Faults of filters that lie in several keys."""
