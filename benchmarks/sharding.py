"""What a batch over a cluster costs each node, against the same batch on one server.

`python -m benchmarks.sharding [SERVER…]`: new items in batches of 1,000 into a filter of a million, in turns.
Where client and nodes share few cores, wall time says little about a cluster; how much more it takes than one
server follows from the processor time of its busiest node.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any

import redis

from benchmarks import versions
from benchmarks.servers import DEFAULT
from bloomredis import BloomFilter, ShardedBloomFilter
from tests.clusters import cluster
from tests.servers import Server, binaries, running

BATCH = 1000
BATCHES = 50
ROUNDS = 5
SIZE: dict[str, Any] = {"capacity": 1_000_000, "error_rate": 0.01}
WANTED = 1.8
"""How many times the throughput of one node three should reach."""


@dataclass
class Side:
    """A filter, and the servers that it is on."""

    name: str
    add_many: Callable[[Sequence[str]], list[bool]]
    servers: Sequence[Server]

    def cpu(self) -> list[float]:
        """Return the seconds of processor time that each server has used."""
        return [_cpu(server.client()) for server in self.servers]


@dataclass
class Cost:
    """What a round cost an item, in microseconds: wall time, and the processors of client and nodes."""

    wall: float
    client: float
    nodes: list[float]


def main(names: Sequence[str]) -> None:
    """Print a table for each server."""
    for name in names or DEFAULT:
        with ExitStack() as stack:
            compare(name, binaries()[name], stack)


def compare(name: str, binary: str, stack: ExitStack) -> None:
    """Print what each side costs, and how much more three nodes can take than one."""
    single = stack.enter_context(running(binary))
    made = stack.enter_context(cluster(binary, replicas=0))
    nodes = [node.server for node in made.primaries()]
    client = stack.enter_context(made.client())
    sides = [
        Side("one server", BloomFilter(single.client(), "plain", **SIZE).add_many, [single]),
        Side("16 shards on it", ShardedBloomFilter(single.client(), "sharded", **SIZE).add_many, [single]),
        Side("16 shards on 3 nodes", ShardedBloomFilter(client, "sharded", **SIZE).add_many, nodes),
    ]
    print(versions.line(versions.machine(), versions.server(single.client())))
    print(f"{'us an item':<24} {'wall':>6} {'client':>7}   nodes")
    costs = _in_turns(sides)
    for side, cost in zip(sides, costs, strict=True):
        nodes_used = "  ".join(f"{each:.2f}" for each in cost.nodes)
        print(f"{side.name:<24} {cost.wall:6.2f} {cost.client:7.2f}   {nodes_used}")
    more = costs[0].nodes[0] / max(costs[2].nodes)
    print(
        f"{name}: 3 nodes take {more:.1f} times the items of one, by the busiest node's CPU (>= {WANTED})\n"
    )


def _in_turns(sides: Sequence[Side]) -> list[Cost]:
    numbers = itertools.count()
    rounds: list[list[Cost]] = [[] for _ in sides]
    for side in sides:
        side.add_many(["make", "the", "filter", *(f"warm {number}" for number in range(BATCH))])
    for _ in range(ROUNDS):
        for side, kept in zip(sides, rounds, strict=True):
            first = next(numbers)
            kept.append(_round(side, first))
    return [
        Cost(
            median(cost.wall for cost in kept),
            median(cost.client for cost in kept),
            [median(each) for each in zip(*(cost.nodes for cost in kept), strict=True)],
        )
        for kept in rounds
    ]


def _round(side: Side, number: int) -> Cost:
    batches = [[f"https://example.org/{number}/{i}/{j}" for j in range(BATCH)] for i in range(BATCHES)]
    before, wall, own = side.cpu(), time.perf_counter(), time.process_time()
    for batch in batches:
        side.add_many(batch)
    wall, own = time.perf_counter() - wall, time.process_time() - own
    used = [after - earlier for after, earlier in zip(side.cpu(), before, strict=True)]
    an_item = 1e6 / (BATCH * BATCHES)
    return Cost(wall * an_item, own * an_item, [each * an_item for each in used])


def _cpu(client: redis.Redis) -> float:
    with client:
        used = client.info("cpu")
        return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


if __name__ == "__main__":
    main(sys.argv[1:])
