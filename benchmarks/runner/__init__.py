"""Measurement of one workload: the server, the order of the sides, the counters."""
