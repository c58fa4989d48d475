"""Cost of a batch for each node of a cluster, against the same batch on one server.

Where client and nodes share few cores, wall time says little about a cluster; its throughput against one
server follows from the CPU time of its busiest node.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.runner.bench import Bench
from benchmarks.runner.counters import scheduled
from benchmarks.runner.measure import Result
from benchmarks.sides.ours import Ours
from benchmarks.sides.peer import CAPACITY, RATE
from benchmarks.workloads.items import strings
from bloomredis import ShardedBloomFilter
from tests.support.clusters import cluster

NAME: Final = "batches of 1,000 new items on 1 server and on 3 nodes"
ONE: Final = Ours.name
THREE: Final = "ShardedBloomFilter, 3 nodes"

_BATCH: Final = 1_000
_SIZE: Final[dict[str, Any]] = {"capacity": CAPACITY, "error_rate": RATE}


@dataclass(frozen=True)
class _Side:
    add_many: Callable[[Sequence[str]], list[bool]]
    pids: Sequence[int]


def measured(bench: Bench) -> Result:
    """Measure a filter on the server, one in shards on it, and one in shards on a cluster, in turns."""
    rounds, batches = (2, 10) if bench.quick else (9, 50)
    with ExitStack() as stack:
        nodes = stack.enter_context(cluster(bench.server.binary, replicas=0))
        pids = [node.server.process.pid for node in nodes.primaries() if node.server.process]
        client = stack.enter_context(nodes.client())
        on_one = ShardedBloomFilter(bench.client, "sharded", **_SIZE)
        sides = {
            ONE: _Side(Ours(bench, suffix=" alone").add_many, bench.pids),
            "ShardedBloomFilter, 1 server": _Side(on_one.add_many, bench.pids),
            THREE: _Side(ShardedBloomFilter(client, "sharded", **_SIZE).add_many, pids),
        }
        figures: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in sides}
        for round_ in range(-1, rounds):
            for name, side in sides.items():
                cost = _round(side, strings("sharded", round_ + 1, _BATCH * batches))
                if round_ >= 0:
                    for quantity, value in cost.items():
                        figures[name][quantity].append(value / (_BATCH * batches))
    return Result(NAME, {name: dict(found) for name, found in figures.items()})


def _round(side: _Side, items: Sequence[str]) -> dict[str, float]:
    before, wall, client = [scheduled(pid) for pid in side.pids], time.perf_counter(), time.process_time()
    for start in range(0, len(items), _BATCH):
        side.add_many(items[start : start + _BATCH])
    wall, client = time.perf_counter() - wall, time.process_time() - client
    nodes = [scheduled(pid) - earlier for pid, earlier in zip(side.pids, before, strict=True)]
    return {"wall": wall, "client": client, "cpu": sum(nodes), "busiest": max(nodes)}
