"""Cost of a batch in a sharded filter: by the nodes of a cluster, by capacity, by the number of shards.

Where client and nodes share few cores, wall time says little about a cluster: its throughput follows from
the CPU time of its busiest node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.runner.bench import Bench
from benchmarks.runner.measure import Side, Workload
from benchmarks.sides.ours import Ours, Sharded
from benchmarks.sides.peer import RATE
from benchmarks.workloads import checks
from benchmarks.workloads.batch import in_batches
from benchmarks.workloads.items import strings
from tests.support.clusters import cluster

NODES: Final = "add_many of 1,000 new on 1 server and over the nodes of a cluster"
CAPACITY: Final = "add_many of 1,000 new in 16 shards on 1 server, by capacity"
SHARDS: Final = "add_many of 1,000 new on 1 server, by the number of shards"

COUNTS: Final = (1, 3, 6)
CAPACITIES: Final = (10**6, 10**7, 10**8, 10**9)  # the last takes 1.3 GB
NUMBERS: Final = (1, 4, 16, 64)
_BATCH: Final = 1_000


def over(nodes: int) -> str:
    """Return the name of the side."""
    return f"{Sharded.name}, {nodes} node{'s' * (nodes > 1)}"


def of_capacity(capacity: int) -> str:
    """Return the name of the side."""
    return f"{Sharded.name}, capacity {capacity:,}"


def in_shards(number: int) -> str:
    """Return the name of the side."""
    return f"{Sharded.name}, {number} shard{'s' * (number > 1)}"


def short(side: str) -> str:
    """Return a side's name without that of the class."""
    return side.removeprefix(f"{Sharded.name}, ")


GROWING: Final = (
    (CAPACITY, *map(of_capacity, CAPACITIES)),
    (SHARDS, *map(in_shards, NUMBERS)),
)
"""The workloads whose filter grows, each with its sides; the first is the smallest."""


def workloads(*, quick: bool) -> Iterator[Workload]:
    """Yield the workloads."""
    rounds, batches = (3, 5) if quick else (9, 30)
    for name, sides in ((NODES, _by_nodes), (CAPACITY, _by_capacity), (SHARDS, _by_shards)):
        yield Workload(
            name=name,
            items=lambda round_: strings("sharded", round_, _BATCH * batches),
            sides=sides,
            rounds=rounds,
            separate_cpus=True,
        )


def _by_nodes(bench: Bench) -> Iterator[Side]:
    yield _side(Ours.name, Ours(bench), bench.pids)
    for count in COUNTS:
        nodes = bench.extra.enter_context(cluster(bench.server.binary, primaries=count, replicas=0))
        pids = [node.server.process.pid for node in nodes.nodes if node.server.process]
        client = bench.extra.enter_context(nodes.client())
        yield _side(over(count), Sharded(bench, client=client), pids)


def _by_capacity(bench: Bench) -> Iterator[Side]:
    for capacity in CAPACITIES:
        made = Sharded(bench, capacity=capacity, shards=16, suffix=f" {capacity}")
        yield _side(of_capacity(capacity), made)


def _by_shards(bench: Bench) -> Iterator[Side]:
    for number in NUMBERS:
        yield _side(in_shards(number), Sharded(bench, shards=number, suffix=f" {number}"))


def _side(name: str, peer: Ours | Sharded, pids: list[int] | None = None) -> Side:
    run = in_batches(peer.add_many, _BATCH)
    return Side(name=name, run=run, check=checks.mostly_new(RATE), pids=pids or ())
