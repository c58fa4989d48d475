"""What is wanted, and whether it was reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks import batch, bulk, crowds, memory, sharding, single, streams
from benchmarks.bitmaps import PipelinedSetbit
from benchmarks.measure import Result
from benchmarks.peers import Ours, RedisBloom

Results = Mapping[str, Result]
OURS, NATIVE, SETBIT = Ours.name, RedisBloom.name, PipelinedSetbit.name


@dataclass(frozen=True)
class Wanted:
    """A figure that is computed from results, and its limit."""

    what: str
    value: Callable[[Results], float]
    limit: float
    unit: str = ""
    at_least: bool = False
    servers: tuple[str, ...] = ()  # none: all

    def verdict(self, results: Results) -> Verdict | None:
        """Return what came out, None if it was not measured."""
        try:
            found = self.value(results)
        except KeyError:
            return None
        return Verdict(self, found)


@dataclass(frozen=True)
class Verdict:
    """What came out."""

    wanted: Wanted
    found: float

    @property
    def met(self) -> bool:
        """Whether it is what is wanted."""
        return self.found >= self.wanted.limit if self.wanted.at_least else self.found <= self.wanted.limit

    @property
    def limit(self) -> str:
        """The limit, as it is printed."""
        return f"{'≥' if self.wanted.at_least else '≤'} {self.wanted.limit:g}{self.wanted.unit}"

    @property
    def text(self) -> str:
        """The figure, as it is printed."""
        return f"{self.found:.2f}{self.wanted.unit}"


def verdicts(server: str, results: Results) -> Iterator[Verdict]:
    """Yield a verdict on everything that is wanted of this server and was measured."""
    for wanted in WANTED:
        if not wanted.servers or server in wanted.servers:
            verdict = wanted.verdict(results)
            if verdict is not None:
                yield verdict


def _costs(workload: str, against: str, *, quantity: str = "wall") -> Callable[[Results], float]:
    """Return how many times as much ours takes as another side."""
    return lambda results: results[workload].ratio(quantity, OURS, against)


def _faster(workload: str, against: str, *, side: str = OURS) -> Callable[[Results], float]:
    """Return how many times as many items a second a side does as another one."""
    return lambda results: results[workload].ratio("wall", against, side)


def _typical(workload: str, quantity: str, scale: float = 1) -> Callable[[Results], float]:
    return lambda results: results[workload].median(OURS, quantity) * scale


def _worst(workload: str, quantity: str, scale: float = 1) -> Callable[[Results], float]:
    return lambda results: max(results[workload].sides[OURS][quantity]) * scale


def _sent_once(results: Results) -> float:
    loaded = results[bulk.load_of(1_000_000)]
    return loaded.median(OURS, "replicated") / loaded.median(OURS, "sent")


def _growth(verb: str, *, quick: bool) -> Callable[[Results], float]:
    few, many = memory.sizes(verb, quick=quick)

    def value(results: Results) -> float:
        less = results[memory.CLIENT.format(verb, few)].median(OURS, "growth")
        return (results[memory.CLIENT.format(verb, many)].median(OURS, "growth") - less) / 1e6

    return value


def _memory() -> Iterator[Wanted]:
    for rate in batch.RATES:
        name = memory.server_name(rate)
        yield Wanted(f"{name}, in units of its bits", _typical(name, "memory/bits"), 1.05)
    for verb in memory.VERBS:
        for quick in (False, True):
            few, many = memory.sizes(verb, quick=quick)
            what = f"{verb}: memory of the client with {many:,} items more than with {few:,}"
            yield Wanted(what, _growth(verb, quick=quick), 8, " MB")


_LOAD: Final = bulk.load_of(1_000_000)
_NEW: Final = batch.name_of("new", 1_000, 1e-2)
_KNOWN: Final = batch.name_of("known", 1_000, 1e-2)
_STRICT: Final = batch.name_of("new", 1_000, 1e-6)
_REDIS_8: Final = ("redis-8",)

WANTED: Final = (
    Wanted("add, new: wall time of BF.ADD", _costs(single.NEW, NATIVE), 1.25, "x"),
    Wanted("add, new: server CPU of BF.ADD", _costs(single.NEW, NATIVE, quantity="cpu"), 1.4, "x"),
    Wanted("add, new: wall time of EVALSHA 'return 1'", _costs(single.NEW, single.RETURN_1), 1.35, "x"),
    Wanted(
        "add, new, one task: wall time of EVALSHA 'return 1'",
        _costs(crowds.tasks_of(1), single.RETURN_1),
        1.35,
        "x",
    ),
    Wanted("add, new: wall time without receipts", _costs(single.RETRY, single.NO_RECEIPTS), 1.10, "x"),
    Wanted(
        "add_many of 1,000 new, 1e-2: server CPU an item",
        _typical(_NEW, "cpu", 1e6),
        1.6,
        " µs",
        False,
        _REDIS_8,
    ),
    Wanted("add_many of 1,000 new, 1e-2: faster than pipelined SETBIT", _faster(_NEW, SETBIT), 12, "x", True),
    Wanted(
        "add_many of 1,000 new, 1e-6: server CPU an item",
        _typical(_STRICT, "cpu", 1e6),
        3.2,
        " µs",
        False,
        _REDIS_8,
    ),
    Wanted("load of 1,000,000: wall time of BF.MADD in 1,000s", _costs(_LOAD, NATIVE), 0.6, "x"),
    Wanted("load of 1,000,000: server CPU of BF.MADD", _costs(_LOAD, NATIVE, quantity="cpu"), 0.2, "x"),
    Wanted(
        "load of 1,000,000: worst PING of another client, median of the rounds",
        _typical(_LOAD, "ping", 1e3),
        5,
        " ms",
    ),
    Wanted("load of 1,000,000: slowest command", _worst(_LOAD, "slowest", 1e3), 2, " ms"),
    Wanted("add_many of 1,000 new, 1e-2: replicated an item", _typical(_NEW, "replicated"), 100, " bytes"),
    Wanted("add_many of 1,000 known, 1e-2: replicated an item", _typical(_KNOWN, "replicated"), 0, " bytes"),
    Wanted("load of 1,000,000: bytes replicated for each byte sent", _sent_once, 1.05),
    *_memory(),
    Wanted(
        "95% duplicates, one by one, local_cache: items a second of BF.ADD",
        _faster(streams.ONE_BY_ONE, NATIVE, side=streams.CACHED),
        8,
        "x",
        True,
    ),
    Wanted(
        "95% duplicates, in 1,000s, local_cache: items a second of BF.MADD",
        _faster(streams.BATCHES, NATIVE, side=streams.CACHED),
        1,
        "x",
        True,
    ),
    Wanted("64 tasks: items a second of BF.ADD", _faster(crowds.tasks_of(64), NATIVE), 6, "x", True),
    Wanted("256 tasks: items a second of BF.ADD", _faster(crowds.tasks_of(256), NATIVE), 9, "x", True),
    Wanted(
        "16 threads: items a second of threads that do not share",
        _faster(crowds.THREADS, OURS, side=crowds.COALESCING),
        4,
        "x",
        True,
    ),
    Wanted(
        "batches on 3 nodes: items that one server takes, by the busiest node's CPU",
        lambda results: results[sharding.NAME].ratio("busiest", sharding.ONE, sharding.THREE),
        1.8,
        "x",
        True,
    ),
)
