"""A deterministic simulation of clients, a network and a server.

Operations are generators without I/O, so calls of several processes are interleaved at every step by a
seeded scheduler, against one server in this process that runs the real scripts.  Faults come from the seed
too.  What callers are answered is checked against what the server was seen to do.

A `Stage` has the processes, the network and the servers; `World` judges filters in one key, step by step, and
`many.world.ManyWorld` filters of many keys, at the end, by the rules of `tests.history`.

`python -m tests.simulation --seed N` replays a run; `python -m tests.simulation --help` says the rest.
"""
