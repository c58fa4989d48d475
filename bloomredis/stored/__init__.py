"""The bytes under a filter's keys, and whether they are still this object's.

LAW: the only parser of them.
"""
