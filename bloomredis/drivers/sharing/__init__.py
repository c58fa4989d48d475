"""Group commit: calls of threads or tasks share round trips."""
