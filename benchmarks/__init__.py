"""Benchmarks: ratios, each taken in one run on one server.  `python -m benchmarks` prints them all."""
