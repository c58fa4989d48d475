"""Calls of threads and of tasks that share round trips."""
