"""Performance targets, and the verdicts on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.runner.measure import Figure, Result
from benchmarks.sides.bitmaps import PipelinedSetbit
from benchmarks.sides.ours import (
    Counting,
    Ours,
    OursByModule,
    Rotating,
    Scaling,
    ScalingFromSmall,
    Sharded,
)
from benchmarks.sides.redisbloom import RedisBloom
from benchmarks.workloads import (
    batch,
    bulk,
    claims,
    concurrency,
    memory,
    saturation,
    sharding,
    single,
    streams,
)

Results = Mapping[str, Result]
OURS, MODULE = Ours.name, OursByModule.name
NATIVE, SETBIT = RedisBloom.name, PipelinedSetbit.name


@dataclass(frozen=True)
class Target:
    """A figure computed from results, and its limit; None if the figure is only recorded.

    :ivar floor: what this form of the library reaches on a slow machine, if it cannot reach the limit on
        every one: a script that is dispatched by Lua, one call a round trip, hashes in Python.
    """

    what: str
    value: Callable[[Results], Figure]
    limit: float | None
    unit: str = ""
    at_least: bool = False
    floor: float | None = None

    def verdict(self, results: Results) -> Verdict | None:
        """Return the verdict, or None if the figure was not measured."""
        try:
            found = self.value(results)
        except KeyError:
            return None
        return Verdict(self, found)


@dataclass(frozen=True)
class Verdict:
    """A target and the figure measured."""

    target: Target
    found: Figure

    @property
    def met(self) -> str:
        """The verdict as text; empty without a limit."""
        if self._reaches(self.target.limit):
            return "met"
        if self._reaches(self.target.floor):
            return "floor"
        return "" if self.target.limit is None else "not met"

    def _reaches(self, limit: float | None) -> bool:
        found = self.found.median
        return limit is not None and (found >= limit if self.target.at_least else found <= limit)

    @property
    def limit(self) -> str:
        """The limit as text."""
        if self.target.limit is None:
            return ""
        return f"{'≥' if self.target.at_least else '≤'} {self.target.limit:g}{self.target.unit}"

    @property
    def text(self) -> str:
        """The figure as text."""
        return f"{self.found.median:.2f}{self.target.unit}"

    @property
    def spread(self) -> str:
        """The quartiles over the rounds as text."""
        return "{:.2f} to {:.2f}".format(*self.found.quartiles) if self.found.quartiles else ""

    @property
    def pinned(self) -> str:
        """Whether client and server had separate processors, as text."""
        return {None: "", False: "no", True: "yes"}[self.found.pinned]

    @property
    def ping(self) -> str:
        """The microseconds of a PING over a bare socket in the same rounds, as text."""
        return "" if self.found.floor is None else f"{self.found.floor * 1e6:.0f}"


def verdicts(results: Results) -> Iterator[Verdict]:
    """Yield the verdicts on all targets that were measured."""
    for target in TARGETS:
        verdict = target.verdict(results)
        if verdict is not None:
            yield verdict


def _ratio(workload: str, side: str, against: str, *, quantity: str = "wall") -> Callable[[Results], Figure]:
    """Return a quantity of a side as a multiple of another side's."""
    return lambda results: results[workload].ratio(quantity, side, against)


def _costs(workload: str, against: str, *, quantity: str = "wall") -> Callable[[Results], Figure]:
    """Return the cost of this library as a multiple of another side's."""
    return _ratio(workload, OURS, against, quantity=quantity)


def _module(workload: str) -> Callable[[Results], Figure]:
    """Return the wall time over the server's module as a multiple of calling the module directly."""
    return _ratio(workload, MODULE, NATIVE)


def _faster(workload: str, against: str, *, side: str = OURS) -> Callable[[Results], Figure]:
    """Return the throughput of a side as a multiple of another side's."""
    return _ratio(workload, against, side)


def _reached(workload: str, *, side: str = OURS) -> Callable[[Results], Figure]:
    """Return the rate at which a side saturates a server, as a multiple of the module's."""
    return _ratio(workload, NATIVE, side, quantity="cpu")


def _typical(workload: str, quantity: str, scale: float = 1) -> Callable[[Results], Figure]:
    return lambda results: results[workload].figure(OURS, quantity, scale)


def _worst(workload: str, quantity: str, scale: float = 1) -> Callable[[Results], Figure]:
    return lambda results: Figure([max(results[workload].sides[OURS][quantity]) * scale])


def _sent_once(results: Results) -> Figure:
    loaded = results[bulk.load_of(1_000_000)]
    return Figure([loaded.median(OURS, "replicated") / loaded.median(OURS, "sent")])


def _growth(verb: str, *, quick: bool) -> Callable[[Results], Figure]:
    few, many = memory.sizes(verb, quick=quick)

    def value(results: Results) -> Figure:
        less = results[memory.CLIENT.format(verb, few)].median(OURS, "growth")
        return Figure([(results[memory.CLIENT.format(verb, many)].median(OURS, "growth") - less) / 1e6])

    return value


def _memory() -> Iterator[Target]:
    for rate in batch.RATES:
        name = memory.server_name(rate)
        yield Target(f"{name}, in units of its bits", _typical(name, "memory/bits"), 1.05, floor=1.2)
    for verb in memory.VERBS:
        for quick in (False, True):
            few, many = memory.sizes(verb, quick=quick)
            what = f"{verb}: memory of the client with {many:,} items more than with {few:,}"
            yield Target(what, _growth(verb, quick=quick), 8, " MB")


def _claims() -> Iterator[Target]:
    for what, workload, limit, floor in (
        ("claim and commit of one item: wall time of an add", claims.ONE, 2.5, None),
        ("64 tasks in once: wall time of 64 tasks in add", claims.TASKS, 3.6, 4.5),
        ("claim_many and commit_many of 500: wall time of add_many", claims.MANY, 9, None),
    ):
        yield Target(what, _ratio(workload, claims.CLAIMED, OURS), limit, "x", floor=floor)


def _scale() -> Iterator[Target]:
    """Yield the targets of sharded batches: the CPU of the busiest node, and of server and client."""
    call = "sharded add_many of 1,000"
    for nodes, limit in ((3, 1.8), (6, None)):
        what = f"{call} on {nodes} nodes: items of 1 server, by the busiest node's CPU"
        value = _ratio(sharding.NODES, OURS, sharding.over(nodes), quantity="busiest")
        yield Target(what, value, limit, "x", True)
    for workload, first, *others in sharding.GROWING:
        for side in others:
            for quantity, whose in (("cpu", "server"), ("client", "client")):
                what = f"{call}, {sharding.short(side)}: {whose} CPU with {sharding.short(first)}"
                yield Target(what, _ratio(workload, side, first, quantity=quantity), None, "x")


_LOAD: Final = bulk.load_of(1_000_000)
_NEW: Final = batch.name_of("new", 1_000, 1e-2)
_TEN: Final = batch.name_of("new", 10, 1e-2)
_TEST: Final = batch.name_of("contains", 1_000, 1e-2)
_KNOWN: Final = batch.name_of("known", 1_000, 1e-2)
_STRICT: Final = batch.name_of("new", 1_000, 1e-6)

TARGETS: Final = (
    Target("add, new: wall time of BF.ADD", _costs(single.NEW, NATIVE), 1.12, "x", floor=1.2),
    Target("the same, processors shared", _costs(single.UNPINNED_NEW, NATIVE), 1.12, "x", floor=1.2),
    Target("contains: wall time of BF.EXISTS", _costs(single.CONTAINS, NATIVE), 0.8, "x", floor=0.95),
    Target("the same, processors shared", _costs(single.UNPINNED_CONTAINS, NATIVE), 0.8, "x", floor=0.95),
    Target(
        "add, new, one task: wall time of BF.ADD",
        _costs(concurrency.tasks_of(1), NATIVE),
        1.12,
        "x",
        floor=1.4,
    ),
    Target("add, new: server CPU of BF.ADD", _costs(single.NEW, NATIVE, quantity="cpu"), 1.4, "x", floor=1.8),
    Target("add, new: wall time of EVALSHA 'return 1'", _costs(single.NEW, single.RETURN_1), 1.35, "x"),
    Target(
        "add, new, one task: wall time of EVALSHA 'return 1'",
        _costs(concurrency.tasks_of(1), single.RETURN_1),
        1.35,
        "x",
    ),
    Target("add, new: wall time without receipts", _costs(single.RETRY, single.NO_RECEIPTS), 1.10, "x"),
    Target("add, new, observed: wall time without", _costs(single.OBSERVING, single.NOT_OBSERVED), 1.1, "x"),
    Target(
        "add_many of 1,000 new, 1e-2: server CPU an item",
        _typical(_NEW, "cpu", 1e6),
        None,
        " µs",
    ),
    Target("add_many of 10 new: wall time of BF.MADD", _costs(_TEN, NATIVE), 1.7, "x"),
    Target("add_many of 1,000 new: wall time of BF.MADD", _costs(_NEW, NATIVE), 3.2, "x", floor=4.3),
    Target("add_many of 1,000 new, 1e-2: faster than pipelined SETBIT", _faster(_NEW, SETBIT), 13, "x", True),
    Target(
        "add_many of 1,000 new, 1e-6: server CPU an item",
        _typical(_STRICT, "cpu", 1e6),
        None,
        " µs",
    ),
    Target("load of 1,000,000: wall time of BF.MADD in 1,000s", _costs(_LOAD, NATIVE), 0.4, "x"),
    *(
        Target(
            f"load of 1,000,000, {side.removeprefix('bloomredis, ')}: wall time of a BloomFilter",
            _ratio(bulk.KINDS, side, OURS),
            limit,
            "x",
        )
        for side, limit in (
            (Scaling.name, 2),
            (ScalingFromSmall.name, 4),
            (Rotating.name, 2),
            (Sharded.name, 1.75),
            (bulk.ROOMY, 2.7),
            (Counting.name, None),
        )
    ),
    Target("load of 1,000,000: server CPU of BF.MADD", _costs(_LOAD, NATIVE, quantity="cpu"), 0.2, "x"),
    Target(
        "load of 1,000,000: worst PING of another client, median of the rounds",
        _typical(_LOAD, "ping", 1e3),
        5,
        " ms",
    ),
    Target("load of 1,000,000: slowest command", _worst(_LOAD, "slowest", 1e3), 2, " ms"),
    Target("add_many of 1,000 new, 1e-2: replicated an item", _typical(_NEW, "replicated"), 100, " bytes"),
    Target("add_many of 1,000 known, 1e-2: replicated an item", _typical(_KNOWN, "replicated"), 0, " bytes"),
    Target("load of 1,000,000: bytes replicated for each byte sent", _sent_once, 1.05),
    *_memory(),
    Target(
        "95% duplicates, one by one, local_cache: items a second of BF.ADD",
        _faster(streams.ONE_BY_ONE, NATIVE, side=streams.CACHED),
        8,
        "x",
        True,
    ),
    Target(
        "95% duplicates, in 1,000s, local_cache: items a second of BF.MADD",
        _faster(streams.BATCHES, NATIVE, side=streams.CACHED),
        0.95,
        "x",
        True,
        floor=0.85,
    ),
    *(
        Target(
            f"95% duplicates, first {calls:,} calls of an object, local_cache: items a second of BF.ADD",
            _faster(streams.COLD[calls], NATIVE, side=streams.CACHED),
            limit,
            "x",
            True,
        )
        for calls, limit in ((2_000, 3.5), (6_000, 4.5))
    ),
    Target(
        "one new item in a pipeline of the caller's: wall time of BF.ADD",
        _costs(single.QUEUED, NATIVE),
        2.1,
        "x",
    ),
    Target("saturated server, add: rate of BF.ADD", _reached(saturation.ADD), 0.32, "x", True, 0.27),
    Target("saturated server, contains: rate of BF.EXISTS", _reached(saturation.TEST), 0.85, "x", True),
    *(
        Target(
            f"{tasks} tasks: items a second of BF.ADD",
            _faster(concurrency.tasks_of(tasks), NATIVE),
            limit,
            "x",
            True,
            floor,
        )
        for tasks, limit, floor in ((8, 2, 1.6), (64, 7.5, 5), (256, 11, 9))
    ),
    *_claims(),
    Target("sharded add, new: wall time of plain", _ratio(single.NEW, Sharded.name, OURS), 1.1, "x"),
    Target(
        "sharded add_many of 1,000 new: wall time of plain",
        _ratio(_NEW, Sharded.name, OURS),
        1.25,
        "x",
        floor=1.3,
    ),
    Target("contains_many of 1,000: wall time of BF.MEXISTS", _costs(_TEST, NATIVE), 1.9, "x", floor=2.7),
    Target("the same: server CPU of BF.MEXISTS", _costs(_TEST, NATIVE, quantity="cpu"), None, "x"),
    Target("module layout, add, new: wall time of BF.ADD", _module(single.NEW), 0.97, "x", floor=1.1),
    Target("the same, processors shared", _module(single.UNPINNED_NEW), 0.97, "x", floor=1.1),
    Target("module layout, contains: wall time of BF.EXISTS", _module(single.CONTAINS), 0.95, "x"),
    Target("the same, processors shared", _module(single.UNPINNED_CONTAINS), 0.95, "x"),
    Target("module layout, add_many of 10 new: wall time of BF.MADD", _module(_TEN), 1.4, "x"),
    Target("module layout, add_many of 1,000 new: wall time of BF.MADD", _module(_NEW), 1.3, "x"),
    Target(
        "module layout, contains_many of 1,000: wall time of BF.MEXISTS", _module(_TEST), 1.15, "x", floor=1.5
    ),
    *(
        Target(
            f"module layout, {tasks} tasks: items a second of BF.ADD",
            _faster(concurrency.tasks_of(tasks), NATIVE, side=MODULE),
            limit,
            "x",
            True,
            floor,
        )
        for tasks, limit, floor in ((8, 2.2, 1.8), (64, 8, 7), (256, 13, 11))
    ),
    *(
        Target(
            f"module layout, saturated server, {what}",
            _reached(workload, side=MODULE),
            limit,
            "x",
            True,
        )
        for what, workload, limit in (
            ("add: rate of BF.ADD", saturation.ADD, 0.35),
            ("contains: rate of BF.EXISTS", saturation.TEST, 0.9),
            ("add_many of 1,000 new: rate of BF.MADD", saturation.BATCH, 0.4),
        )
    ),
    Target("module layout, load of 1,000,000: wall time of BF.MADD in 1,000s", _module(_LOAD), 1.0, "x"),
    *_scale(),
)
