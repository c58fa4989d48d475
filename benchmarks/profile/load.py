"""Profile of `update`: stages of the client, the wire, the server, and copies of memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any, Final

from benchmarks.profile.calls import Recorded, costs_table, stages_table
from benchmarks.profile.raw import Command, compared, seconds
from benchmarks.runner.bench import Bench
from benchmarks.runner.counters import Counters
from benchmarks.sides.ours import Ours
from benchmarks.sides.redisbloom import RedisBloom
from benchmarks.workloads.bulk import fill
from benchmarks.workloads.items import strings
from bloomredis.bits import encoding, hashing
from bloomredis.bits.hashing import HASHED_AT_ONCE
from bloomredis.bits.layout import Layout
from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.operations.whole import loading
from bloomredis.operations.whole.loading import LOAD_ITEMS

_ITEMS: Final = 1_000_000


def load(bench: Bench, counters: Counters) -> Iterator[str]:
    """Profile `update` of a million items into a filter of that capacity."""
    items = strings("load", 0, _ITEMS)
    ours = Recorded(bench, "stages")
    yield f"### load of {_ITEMS:,}, for an item (read by {LOAD_ITEMS:,})"
    yield stages_table({**_stages(ours.layout, items[:LOAD_ITEMS]), **_whole_stages(ours, items)}, "ns")
    yield from _sent(bench, counters, items)
    yield _whole(bench, counters, items)


def _stages(layout: Layout, piece: Sequence[str]) -> dict[str, float]:
    """Time the stages of each piece of items."""

    def cut() -> Iterator[Sequence[str]]:
        return (piece[start : start + HASHED_AT_ONCE] for start in range(0, len(piece), HASHED_AT_ONCE))

    stages: dict[str, Callable[[], object]] = {
        "read the items, from a list": lambda: list(islice(iter(piece), LOAD_ITEMS)),
        "encode them": lambda: encoding.encode_all(piece),
        "hash them": lambda: list(map(hashing.digests, cut())),
        "hash them, and compute their bit addresses": lambda: list(map(layout.hashed, cut())),
    }
    return {name: seconds(stage, 5) / len(piece) for name, stage in stages.items()}


def _whole_stages(ours: Recorded, items: Sequence[str]) -> dict[str, float]:
    """Time the stages of a batch of pieces."""
    found = b"\1" * loading.SEGMENT_BYTES  # as if another client had added items
    times: list[tuple[float, ...]] = []
    for _ in range(5):
        load = loading.Load(ours.layout, ours.codec)
        clock = [time.perf_counter()]
        for start in range(0, len(items), LOAD_ITEMS):
            load.append_items(items[start : start + LOAD_ITEMS])
        clock.append(time.perf_counter())
        for segment in load.segments():
            load.record_previous(segment, found[: len(segment.data)])
        clock.append(time.perf_counter())
        load.finish_batch()
        clock.append(time.perf_counter())
        times.append(tuple(end - begin for begin, end in pairwise(clock)))
    take, cut, count = (statistics.median(each) / len(items) for each in zip(*times, strict=True))
    bits = bytes(ours.layout.num_bits // 8)
    return {
        "all of that, set their bits in a bitmap, and drop duplicates": take,
        "cut it into segments, and record the previous bits": cut,
        "count the new ones": count,
        "lower bound: copy as many bytes as the filter has": seconds(lambda: bytearray(bits), 3) / len(items),
    }


def _sent(bench: Bench, counters: Counters, items: list[str]) -> Iterator[str]:
    """Compare the commands with a batch's bits with plain writes of the same bytes."""
    ours = Recorded(bench, "segments")
    Recorded(bench, "other").filter.update(items)  # loads the script into the server
    sent = [
        command
        for command in ours.recorder.record(lambda: ours.filter.update(items), lambda _: b"")
        if len(_largest(command)) > 1000
    ]
    zeros = bytes(ours.layout.num_bits // 8)

    def emptied(_: int) -> list[Command]:
        bench.client.setrange("segments", HEADER_BYTES, zeros)
        return sent

    def plain(_: int) -> list[Command]:
        return [
            ("SETRANGE", "floor", i * loading.SEGMENT_BYTES, _largest(each)) for i, each in enumerate(sent)
        ]

    costs = compared(
        bench,
        counters,
        {
            "or a segment into an empty filter": emptied,
            "or it again": lambda _: sent,
            "SETRANGE of the same bytes": plain,
        },
        3 if bench.quick else 15,
    )
    yield f"All of it is sent as {len(sent)} segments of at most {loading.SEGMENT_BYTES:,} bytes."
    yield costs_table(costs, len(items) / len(sent), unit="ns")


def _largest(command: Command) -> bytes:
    return max((part for part in command if isinstance(part, bytes)), key=len)


def _whole(bench: Bench, counters: Counters, items: list[str]) -> str:
    runs: dict[str, Callable[[Any], object]] = {
        "update()": lambda _: Ours(bench).filter.update(iter(items)),
    }
    if RedisBloom.missing(bench) is None:
        runs["BF.MADD in 1,000s"] = lambda _: fill(RedisBloom(bench))(items)
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in runs}
    for _ in range(2 if bench.quick else 5):
        for name, run in runs.items():
            bench.clean()
            cost = counters.measure(run, None)[1]
            found[name].append((cost.wall, cost.client, cost.cpu))
    lines = [
        "| all of it, for an item | wall ns | client CPU ns | server CPU ns |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, costs in found.items():
        figures = [statistics.median(each) / len(items) * 1e9 for each in zip(*costs, strict=True)]
        lines.append(f"| {name} | " + " | ".join(f"{figure:.1f}" for figure in figures) + " |")
    return "\n".join(lines)
