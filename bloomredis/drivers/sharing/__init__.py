"""Group commit: calls of tasks share round trips."""
