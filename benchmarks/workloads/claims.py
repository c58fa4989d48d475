"""Workloads of claims, compared with adds of the same items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import bloomredis.asyncio
from benchmarks.runner.bench import Bench
from benchmarks.runner.measure import Answers, Side, Workload
from benchmarks.sides.ours import Ours
from benchmarks.sides.peer import CAPACITY, RATE
from benchmarks.workloads import checks
from benchmarks.workloads.batch import in_batches
from benchmarks.workloads.concurrency import by_tasks
from benchmarks.workloads.items import strings

ONE: Final = "claim and commit of one item a call"
TASKS: Final = "64 asyncio tasks in once, one new item a call"
MANY: Final = "claim_many and commit_many, 500 a call"
CLAIMED: Final = "bloomredis, claims"

_BATCH: Final = 500


def workloads(*, quick: bool) -> Iterator[Workload]:
    """Yield the workloads."""
    for name, sides, count in ((ONE, _one, 200), (TASKS, _tasks, 6_400), (MANY, _many, 4 * _BATCH)):
        yield Workload(
            name=name,
            items=partial(_items, count=count // 4 if quick else count),
            sides=sides,
            rounds=3 if quick else 15,
            separate_cpus=name == ONE,
        )


def _items(round_: int, *, count: int) -> list[str]:
    return strings("claims", round_, count)


def _one(bench: Bench) -> Iterator[Side]:
    yield _side(Ours.name, Ours(bench).add_each)
    yield _side(CLAIMED, partial(_claim_each, Ours(bench, suffix=" claimed").filter))


def _claim_each(ours: bloomredis.BloomFilter, items: Sequence[str]) -> Answers:
    """Claim and commit items, one by one; return for each whether it was new."""
    answers = []
    for item in items:
        claim = ours.claim(item)
        answers.append(bool(claim))
        if claim:
            claim.commit()
    return answers


def _tasks(bench: Bench) -> Iterator[Side]:
    for name in (Ours.name, CLAIMED):
        ours = bloomredis.asyncio.BloomFilter(
            bench.aio, name, capacity=CAPACITY, error_rate=RATE, layout=bench.layout
        )
        yield _side(name, by_tasks(bench, 64, ours.once(None)(_true) if name == CLAIMED else ours.add))


async def _true(_: str) -> bool:
    return True


def _many(bench: Bench) -> Iterator[Side]:
    yield _side(Ours.name, in_batches(Ours(bench).add_many, _BATCH))
    claiming = partial(_claim_many, Ours(bench, suffix=" claimed").filter)
    yield _side(CLAIMED, in_batches(claiming, _BATCH))


def _claim_many(ours: bloomredis.BloomFilter, items: Sequence[str]) -> list[bool]:
    """Claim and commit items together; return for each whether it was new."""
    claims = ours.claim_many(items)
    answers = [bool(claim) for claim in claims]
    states = ours.commit_many(claims)
    assert set(states) == {"done"}
    return answers


def _side(name: str, run: Any) -> Side:
    return Side(name=name, run=run, check=checks.mostly_new(RATE))
