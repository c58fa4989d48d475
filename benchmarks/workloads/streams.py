"""Workloads on a stream of mostly duplicates, with `local_cache` and without.

The cold workloads are the first calls of an object, whose cache is still empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from benchmarks.runner.bench import Bench
from benchmarks.runner.measure import Answers, Side, Workload
from benchmarks.sides.ours import Ours
from benchmarks.sides.peer import RATE, Peer, present
from benchmarks.sides.redisbloom import RedisBloom
from benchmarks.workloads import checks
from benchmarks.workloads.batch import in_batches
from benchmarks.workloads.items import stream

CACHED: Final = "bloomredis, local_cache"
ONE_BY_ONE: Final = "stream of 95% duplicates, one by one"
BATCHES: Final = "stream of 95% duplicates, in batches of 1,000"
COLD: Final = {
    calls: f"stream of 95% duplicates, first {calls:,} calls of an object" for calls in (2_000, 6_000)
}


def workloads(*, quick: bool) -> Iterator[Workload]:
    """Yield the workloads."""
    for name, size, batch in ((ONE_BY_ONE, 2_000, 1), (BATCHES, 20_000, 1_000)):
        yield Workload(
            name=name,
            items=partial(stream, count=size // 4 if quick else size),
            sides=partial(_sides, batch=batch),
            rounds=3 if quick else 15,
            warm_up=2,
            separate_cpus=batch == 1,
            same=(CACHED, Ours.name),
        )
    for calls, name in list(COLD.items())[: 1 if quick else None]:
        yield Workload(
            name=name,
            items=partial(stream, count=calls),
            sides=_cold_sides,
            rounds=3 if quick else 11,
            warm_up=4,
            separate_cpus=True,
        )


def _cold_sides(bench: Bench) -> Iterator[Side]:
    new = checks.mostly_new(RATE, fresh=0.05)

    def run(items: Sequence[str]) -> Answers:
        return Ours(bench, suffix=" cold", local_cache=True).add_each(items)

    yield Side(name=CACHED, run=run, check=new)
    for kind in present(bench, RedisBloom):
        yield Side(name=kind.name, run=kind(bench).add_each, check=new)


def _sides(bench: Bench, *, batch: int) -> Iterator[Side]:
    peers: dict[str, Peer] = {CACHED: Ours(bench, suffix=" cached", local_cache=True)}
    for kind in present(bench, Ours, RedisBloom):
        peers[kind.name] = kind(bench)
    for name, peer in peers.items():
        run = in_batches(peer.add_many, batch) if batch > 1 else peer.add_each
        yield Side(name=name, run=run, check=checks.mostly_new(RATE, fresh=0.05))
