"""A deterministic simulation of clients, a network and a server.

Operations are generators without I/O, so a seeded scheduler interleaves calls of several processes at every
step, against one server in this process that runs the real scripts. Faults come from the seed too. The
callers' answers are checked against the changes that the server made.

A `Stage` has the processes, the network and the servers. `World` judges filters in one key, step by step.
`many.world.ManyWorld` judges filters of many keys, at the end, by the rules of `tests.rules`.

`python -m tests.simulation --seed N` replays a run; `python -m tests.simulation --help` describes the rest.
"""
