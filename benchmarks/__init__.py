"""Benchmarks: this library beside its peers, in turns, on one server (`python -m benchmarks`)."""
