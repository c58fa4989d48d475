"""A history checker: it checks the answers of many callers on real servers over faulty connections.

Threads, tasks, processes and forked children call filters of every kind through proxies whose faults come
from a seed. Meanwhile filters are flushed, evicted key by key, cleared twice at the same time, deleted, and
left half cleared by processes that are killed. Each call is recorded with its answer or error, and the
records are checked afterwards.

With `--cluster` the filters are on a cluster whose nodes freeze, die, fail over and move slots, and clients
have pools of two or ten connections, or redis-py's default.

`python -m tests.history` runs it for as long as you like; `--kind` and `--without` choose what happens. A
seed repeats the faults of each connection and the calls of each worker, but not how they interleave.
"""
