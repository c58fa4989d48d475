"""A history checker: what many callers were answered by real servers, over connections that fail.

Threads, tasks, processes and forked children call filters of every kind through proxies whose faults come
from a seed.  Meanwhile filters are flushed, evicted key by key, cleared twice at once, deleted, and left half
cleared by processes that are killed.  Each call is recorded with its answer or error, and the records are
checked afterwards.

`python -m tests.history` runs it for as long as one likes; `--kind` and `--without` choose what happens.  A
seed repeats the faults of each connection and what each worker asks for, not how they interleave.
"""
