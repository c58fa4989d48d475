"""The bytes under a filter's keys, and whether they still belong to the filter that an object knows.

LAW: only this package parses these bytes.
"""
