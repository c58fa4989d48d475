"""A history checker: what many callers were answered by real servers, over connections that fail.

Threads, tasks, processes and forked children call filters through a proxy whose faults come from a seed.
Each call is recorded with its answer or error, and the records are checked afterwards.  `python -m
tests.history` runs it for as long as one likes; a seed repeats the faults of each connection and what each
worker asks for, not how they interleave.
"""
