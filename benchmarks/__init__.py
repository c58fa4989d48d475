"""Benchmarks of this library and its peers, in turns, on one server.

`runner` measures, `sides` are the filters compared, `workloads` are the tasks that they are given, `report`
prints the figures and compares them with targets, and `profile` breaks one call down into its parts.
"""
