"""Benchmarks of this library and its peers, in turns, on one server.

`runner` measures, `sides` has the filters compared, `workloads` their tasks, `report` prints the figures
and compares them with targets, and `profile` breaks one call down into its parts.
"""
