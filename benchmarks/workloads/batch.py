"""Workloads with many items a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from benchmarks.runner.bench import Bench
from benchmarks.runner.measure import Answers, Side, Workload
from benchmarks.sides.bitmaps import DecimalScript, PipelinedSetbit
from benchmarks.sides.ours import Ours, OursByModule, Sharded
from benchmarks.sides.peer import Peer, present
from benchmarks.sides.pottery import Pottery
from benchmarks.sides.redisbloom import RedisBloom
from benchmarks.sides.valbloom import Valbloom
from benchmarks.workloads import checks
from benchmarks.workloads.items import strings

RATES: Final = (1e-2, 1e-6)
SIZES: Final = (10, 100, 1_000, 10_000)
_BETWEEN: Final = 1e-3
"""An error rate of which only batches of 1,000 are measured."""
_SLOW: Final = (Pottery, Valbloom)  # up to a second for 10,000 items


def name_of(verb: str, size: int, error_rate: float) -> str:
    """Return a workload's name; `verb` is `"new"`, `"known"` or `"contains"`."""
    call = "contains_many" if verb == "contains" else f"add_many, {verb}"
    return f"{call}, {size:,} a call, {short(error_rate)}"


def short(error_rate: float) -> str:
    """Format an error rate, for example as `"1e-2"`."""
    return f"{error_rate:.0e}".replace("e-0", "e-")


def workloads(*, quick: bool) -> Iterator[Workload]:
    """Yield the workloads; if `quick`, only the sizes on the pages."""
    for error_rate in (*RATES, _BETWEEN):
        for size in (1_000,) if error_rate == _BETWEEN else (10, 1_000) if quick else SIZES:
            calls = (10 if size == 10 else 1) if quick else {10: 50, 100: 10, 1_000: 4, 10_000: 1}[size]
            for verb in ("new", "known", "contains"):
                yield Workload(
                    name=name_of(verb, size, error_rate),
                    items=partial(_items, count=calls * size),
                    sides=partial(_sides, verb=verb, size=size, error_rate=error_rate),
                    rounds=3 if quick else 11,
                    warm_up=1 if quick else 2,
                    latency_rounds=(1 if quick else 3) if verb == "new" else 0,
                    replicated=size == 1_000 and error_rate == RATES[0] and verb != "contains",
                )


def _items(round_: int, *, count: int) -> list[str]:
    return strings("many", round_, count)


def _sides(bench: Bench, *, verb: str, size: int, error_rate: float) -> list[Side]:
    kinds: list[type[Peer]] = [Ours, OursByModule, RedisBloom, PipelinedSetbit, DecimalScript]
    kinds += _SLOW if size <= 1_000 and error_rate == RATES[0] else ()
    kinds += (Sharded,) if size == 1_000 and error_rate == RATES[0] else ()
    peers = [kind(bench, error_rate=error_rate) for kind in present(bench, *kinds)]
    if verb == "new":
        new = checks.mostly_new(error_rate)
        return [Side(name=peer.name, run=in_batches(peer.add_many, size), check=new) for peer in peers]
    return [
        Side(
            name=peer.name,
            prepare=in_batches(peer.add_many, 1_000),
            run=in_batches(peer.add_many if verb == "known" else peer.contains_many, size),
            check=checks.none_new if verb == "known" else checks.all_there,
        )
        for peer in peers
    ]


def in_batches(call: Callable[[Sequence[str]], Sequence[Any]], size: int) -> Callable[[Any], Answers]:
    """Return a function that passes items to `call` in batches and joins the answers."""

    def run(items: Sequence[str]) -> Answers:
        answers: list[Any] = []
        for start in range(0, len(items), size):
            answers += call(items[start : start + size])
        return answers

    return run
