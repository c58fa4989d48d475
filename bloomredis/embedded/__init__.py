"""Clients for URLs, and the private servers that some URLs start: the module of both functions `connect`.

This package uses redis-py and knows nothing about filters.
"""
