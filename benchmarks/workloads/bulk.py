"""Workloads of a million items and more: `update`, and a published case.

The published case: 10,000,000 random lower-case strings of 4 to 12 letters into 2^32 bits with 8 hashes;
2,574 adds a second one by one, 12,000 in pipelines. This library's header takes 512 of the bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from benchmarks.runner.bench import Bench
from benchmarks.runner.measure import Answers, Items, Side, Workload
from benchmarks.sides.ours import (
    Counting,
    Ours,
    OursByModule,
    OwnFilter,
    Rotating,
    Scaling,
    ScalingFromSmall,
    Sharded,
)
from benchmarks.sides.peer import RATE, Peer, present
from benchmarks.sides.redisbloom import RedisBloom
from benchmarks.workloads import checks
from benchmarks.workloads.items import Generated, Letters, strings
from bloomredis.bits.sizing import MAX_BITS
from bloomredis.stored import planning

KINDS: Final = "load 1,000,000 into filters of other kinds"
ROOMY: Final = "bloomredis, capacity 50,000,000"
ADD_MANY: Final = "bloomredis, add_many of 1,000"

_HASHES: Final = 8
_SAMPLE: Final = 10_000
Fill = Callable[[Peer], Callable[[Any], Answers]]


def load_of(size: int) -> str:
    """Return the name of the workload."""
    return f"load {size:,} into a filter of that size"


def published(how: str) -> str:
    """Return the name of the workload; `how` is `"one by one"`, `"in 1,000s"` or `"load"`."""
    return f"published case (2^32 bits, 8 hashes), {how}"


def workloads(*, quick: bool) -> Iterator[Workload]:
    """Yield the workloads."""
    yield Workload(
        name=load_of(1_000_000),
        items=lambda round_: strings("load", round_, 1_000_000),
        sides=partial(_load_sides, capacity=1_000_000, with_batches=not quick),
        rounds=2 if quick else 7,
        warm_up=1,
        latency_rounds=1 if quick else 5,
        replicated=True,
    )
    yield Workload(
        name=KINDS,
        items=lambda round_: strings("kinds", round_, 1_000_000),
        sides=_kinds,
        rounds=2 if quick else 5,
        warm_up=1,
    )
    if not quick:
        yield Workload(
            name=load_of(10_000_000),
            items=lambda round_: Generated(f"load{round_}", 10_000_000),
            sides=partial(_load_sides, capacity=10_000_000, with_batches=False),
            rounds=3,
            warm_up=0,
        )
    yield from _published(quick=quick)


def _load_sides(bench: Bench, *, capacity: int, with_batches: bool) -> Iterator[Side]:
    sides: list[tuple[str, type[Peer], Fill]] = [
        (Ours.name, Ours, load),
        (OursByModule.name, OursByModule, load),
        (RedisBloom.name, RedisBloom, fill),
    ]
    if with_batches:
        sides.append((ADD_MANY, Ours, fill))
    for name, kind, how in sides:
        if kind.missing(bench) is None:
            yield _Fresh(bench, kind, how, capacity).side(name)


def _kinds(bench: Bench) -> Iterator[Side]:
    slow = () if bench.quick else (Counting,)
    for kind in (Ours, Scaling, ScalingFromSmall, Rotating, Sharded, *slow):
        yield _Fresh(bench, kind, load, 1_000_000).side(kind.name)
    yield _Fresh(bench, Ours, load, 50_000_000).side(ROOMY)


class _Fresh:
    """A side that starts each round with an empty filter."""

    def __init__(self, bench: Bench, kind: type[Peer], how: Fill, capacity: int) -> None:
        self._bench = bench
        self._kind = kind
        self._how = how
        self._capacity = capacity

    def side(self, name: str) -> Side:
        return Side(name=name, prepare=self._renew, run=self._fill, check=self._check)

    def _renew(self, _: Items) -> None:
        self._bench.clean()
        self._peer = self._kind(self._bench, capacity=self._capacity)
        self._run = self._how(self._peer)

    def _fill(self, items: Items) -> Answers:
        return self._run(items)

    def _check(self, items: Items, _: Answers) -> None:
        checks.all_there(range(_SAMPLE), self._peer.contains_many(list(islice(items, _SAMPLE))))
        absent = sum(map(bool, self._peer.contains_many(strings("absent", 0, _SAMPLE))))
        if absent > 1.5 * RATE * _SAMPLE:
            raise AssertionError(f"{absent} of {_SAMPLE} items were found that had never been added")
        if isinstance(self._peer, OwnFilter):
            count = self._peer.filter.info().count
            if not len(items) * (1 - RATE) <= count <= len(items):
                raise AssertionError(f"the filter counted {count} items of {len(items)}")


def load(peer: Peer) -> Callable[[Iterable[str]], None]:
    """Return a function that loads items with `update`."""
    assert isinstance(peer, OwnFilter)
    filter_ = peer.filter

    def run(items: Iterable[str]) -> None:
        filter_.update(iter(items))

    return run


def fill(peer: Peer) -> Callable[[Iterable[str]], None]:
    """Return a function that adds items in batches of 1,000."""

    def run(items: Iterable[str]) -> None:
        left = iter(items)
        while batch := list(islice(left, 1_000)):
            peer.add_many(batch)

    return run


def each(peer: Peer) -> Callable[[Iterable[str]], Sequence[Any]]:
    """Return a function that adds items one by one."""
    return lambda items: peer.add_each(list(items))


def _published(*, quick: bool) -> Iterator[Workload]:
    scale = 64 if quick else 1  # divisor of the number of bits; fewer items, too
    ways: dict[str, tuple[Fill, Fill, int]] = {
        "one by one": (each, each, 500 if quick else 20_000),
        "in 1,000s": (fill, fill, 20_000 if quick else 2_000_000),
        "load": (load, fill, 20_000 if quick else 2_000_000),
    }
    for seed, (how, (ours, theirs, size)) in enumerate(ways.items()):
        yield Workload(
            name=published(how),
            items=partial(_letters, seed=seed, size=size),
            sides=partial(_published_sides, bits=MAX_BITS // scale, fills=(ours, theirs)),
            rounds=2 if quick else 5,
            warm_up=1 if quick else 0,
            separate_cpus=how == "one by one",
        )


def _letters(round_: int, *, seed: int, size: int) -> Letters:
    return Letters(1000 * seed + round_, size)


def _published_sides(bench: Bench, *, bits: int, fills: tuple[Fill, Fill]) -> Iterator[Side]:
    kinds: tuple[type[Peer], ...] = (Ours, RedisBloom)
    for kind, how in zip(kinds, fills, strict=True):
        for there in present(bench, kind):
            layout = bench.layout or planning.DEFAULT if there is Ours else "classic"
            capacity, error_rate = _sized(bits, layout)
            peer = there(bench, capacity=capacity, error_rate=error_rate)
            yield Side(name=peer.name, run=how(peer), check=partial(_all_there, peer))


def _sized(bits: int, layout: str) -> tuple[int, float]:
    """Return capacity and error rate of the largest filter of at most `bits` bits with 8 hashes."""
    for permille in range(1000, 700, -1):  # a layout may need more bits than the formula says
        capacity = int(bits * math.log(2) / _HASHES * permille / 1000)
        error_rate = 2.0**-_HASHES
        try:
            if planning.plan_layout(layout, capacity, error_rate).num_bits <= bits:
                return capacity, error_rate
        except ValueError:
            continue
    raise AssertionError(f"no filter of the layout {layout!r} fits into {bits} bits")


def _all_there(peer: Peer, items: Items, _: Answers) -> None:
    sample = list(islice(items, _SAMPLE))
    checks.all_there(sample, peer.contains_many(sample))
