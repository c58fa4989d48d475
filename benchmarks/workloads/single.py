"""Workloads with one item a call."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from benchmarks.runner.bench import Bench
from benchmarks.runner.measure import Answers, Side, Workload
from benchmarks.sides.bitmaps import DecimalScript, PipelinedSetbit, SetbitByTrip
from benchmarks.sides.ours import Ours, OursByModule, Sharded
from benchmarks.sides.peer import RATE, Peer, present
from benchmarks.sides.pottery import Pottery
from benchmarks.sides.redisbloom import RedisBloom
from benchmarks.sides.valbloom import Valbloom
from benchmarks.workloads import checks
from benchmarks.workloads.items import strings
from bloomredis import CallEvent, instrument

RETURN_1: Final = "EVALSHA 'return 1'"
"""Lower bound: the cost of an empty script."""

NO_RECEIPTS: Final = "bloomredis, retry_safe=False"
WRAPPED: Final = "bloomredis, wrapped client"
"""A client that the library uses as it is."""
NEW: Final = "add, one new item a call"
KNOWN: Final = "add, one known item a call"
CONTAINS: Final = "contains, one item a call"
UNPINNED_NEW: Final = f"{NEW}, processors shared"
UNPINNED_CONTAINS: Final = f"{CONTAINS}, processors shared"
RETRY: Final = f"{NEW}, retry_safe or not"
OBSERVING: Final = f"{NEW}, observed or not"
QUEUED: Final = "one new item in a pipeline of the caller's"
NOT_OBSERVED: Final = "bloomredis, not observed"

PEERS: Final = (
    Ours,
    OursByModule,
    RedisBloom,
    PipelinedSetbit,
    SetbitByTrip,
    DecimalScript,
    Pottery,
    Valbloom,
)


def workloads(*, quick: bool) -> Iterator[Workload]:
    """Yield the workloads."""
    rounds, calls = (3, 50) if quick else (21, 200)

    def items(round_: int) -> list[str]:
        return strings("one", round_, calls)

    yield Workload(
        name=NEW,
        items=items,
        sides=_new,
        rounds=rounds,
        separate_cpus=True,
        replicated=True,
        latency_rounds=1 if quick else 3,
    )
    yield Workload(name=KNOWN, items=items, sides=_known, rounds=rounds, separate_cpus=True)
    yield Workload(name=CONTAINS, items=items, sides=_contains, rounds=rounds, separate_cpus=True)
    yield Workload(name=UNPINNED_NEW, items=items, sides=_new, rounds=rounds)
    yield Workload(name=UNPINNED_CONTAINS, items=items, sides=_contains, rounds=rounds)
    yield Workload(name=RETRY, items=items, sides=_retry, rounds=2 * rounds, separate_cpus=True)
    yield Workload(name=QUEUED, items=items, sides=_queued, rounds=rounds, separate_cpus=True)
    yield Workload(name=OBSERVING, items=items, sides=_observing, rounds=2 * rounds, separate_cpus=True)


def _made(bench: Bench) -> list[Peer]:
    return [kind(bench) for kind in present(bench, *PEERS)]


def _new(bench: Bench) -> list[Side]:
    new = checks.mostly_new(RATE)
    through_client = Ours(bench, suffix=" wrapped", client=bench.wrapped_client())
    return [
        *(Side(name=peer.name, run=peer.add_each, check=new) for peer in _made(bench)),
        Side(name=WRAPPED, run=through_client.add_each, check=new),
        Side(name=Sharded.name, run=Sharded(bench).add_each, check=new),
        floor(bench),
    ]


def _known(bench: Bench) -> list[Side]:
    return [
        Side(name=peer.name, prepare=peer.add_many, run=peer.add_each, check=checks.none_new)
        for peer in _made(bench)
    ]


def _contains(bench: Bench) -> list[Side]:
    return [
        Side(name=peer.name, prepare=peer.add_many, run=peer.contains_each, check=checks.all_there)
        for peer in _made(bench)
    ]


def _retry(bench: Bench) -> list[Side]:
    safe = Ours(bench)
    unsafe = Ours(bench, suffix=" unsafe", retry_safe=False)
    new = checks.mostly_new(RATE)
    return [
        Side(name=Ours.name, run=safe.add_each, check=new),
        Side(name=NO_RECEIPTS, run=unsafe.add_each, check=new),
    ]


def _queued(bench: Bench) -> Iterator[Side]:
    new, client = checks.mostly_new(RATE), bench.client
    for kind in (Ours, OursByModule):
        if kind.missing(bench) is None:
            queue = kind(bench).filter.queue_add
            yield Side(name=kind.name, run=partial(_queue_each, client, queue), check=new)
    if RedisBloom.missing(bench) is None:
        key = RedisBloom(bench).key
        native = partial(_queue_native, key)
        yield Side(name=RedisBloom.name, run=partial(_queue_each, client, native), check=new)


def _queue_native(key: str, pipe: Any, item: str) -> None:
    pipe.execute_command("BF.ADD", key, item)


def _queue_each(client: Any, queue: Callable[[Any, str], object], items: Sequence[str]) -> Answers:
    """Queue each item in a separate pipeline."""
    answers = []
    for item in items:
        pipe = client.pipeline(transaction=False)
        queue(pipe, item)
        answers += pipe.execute()
    return answers


def _observing(bench: Bench) -> list[Side]:
    events: deque[CallEvent] = deque(maxlen=1)
    observed = Ours(bench)
    plain = Ours(bench, suffix=" plain")
    new = checks.mostly_new(RATE)

    def observe_each(items: Sequence[str]) -> Answers:
        instrument(events.append)
        try:
            return observed.add_each(items)
        finally:
            instrument(None)

    return [
        Side(name=Ours.name, run=observe_each, check=new),
        Side(name=NOT_OBSERVED, run=plain.add_each, check=new),
    ]


def floor(bench: Bench) -> Side:
    """Return a side that calls an empty script for each item."""
    client = bench.client
    sha = client.script_load("return 1")

    def run(items: Sequence[str]) -> Answers:
        return [client.evalsha(sha, 0) for _ in items]

    return Side(name=RETURN_1, run=run, check=checks.all_there)
