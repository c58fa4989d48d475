"""Where the time of `load` goes: stages of the client, the wire, the server, and copies of memory."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from benchmarks.bench import Bench
from benchmarks.bulk import fill
from benchmarks.items import strings
from benchmarks.meters import Meter
from benchmarks.peers import Ours, RedisBloom
from benchmarks.profile_calls import Recorded, costs_table, stages_table
from benchmarks.raw import Command, compared, seconds
from bloomredis import bulk, hashing
from bloomredis.filter import LOAD_ITEMS
from bloomredis.header import HEADER_BYTES

_ITEMS: Final = 1_000_000
_BLOCK: Final = 4096  # items hashed at a time, as the library does


def load(on: Bench, meter: Meter) -> Iterator[str]:
    """Profile `load` of a million items into a filter of that capacity."""
    items = strings("load", 0, _ITEMS)
    batch = items[:LOAD_ITEMS]
    yield f"### load of 1,000,000, for an item (in batches of {LOAD_ITEMS:,})"
    yield stages_table({name: taken / len(batch) for name, taken in _stages(on, batch).items()}, "ns")
    yield from _sent(on, meter, batch)
    yield _whole(on, meter, items)


def _stages(on: Bench, batch: list[str]) -> dict[str, float]:
    mine = Recorded(on, "stages")
    layout, operations = mine.layout, mine.filter._operations  # noqa: SLF001 - its stages are what is profiled
    probes = bulk.prepare(layout, batch, operations).probes
    assert probes is not None
    empty, bits = bytes(bulk.SEGMENT_BYTES), bytearray(layout.num_bits // 8)

    def segments() -> bulk.Batch:
        work = bulk.Batch(layout, probes)
        for segment in work.segments():
            work.before(segment, empty[: len(segment.data)])
        return work

    def digests() -> None:
        for start in range(0, len(batch), _BLOCK):
            hashing.digests(batch[start : start + _BLOCK])

    stages: dict[str, Callable[[], object]] = {
        "read the items from an iterator": lambda: list(islice(iter(batch), LOAD_ITEMS)),
        "encode them": lambda: operations.encode_all(batch),
        "hash them": digests,
        "hash them and compute their probes": lambda: bulk.columns(layout, batch),
        "set the bits of the batch, and compare with what was there": segments,
        "count the new ones": segments().new,
        "floor: copy as many bytes as the filter has": lambda: bytes(bits),
    }
    return {name: seconds(stage, 1) for name, stage in stages.items()}


def _sent(on: Bench, meter: Meter, batch: list[str]) -> Iterator[str]:
    """Compare the commands that carry the bits of a batch with plain writes of the same bytes."""
    mine = Recorded(on, "segments")
    Recorded(on, "other").filter.load(batch)  # the server learns the script
    sent = [
        command
        for command in mine.recorder.record(lambda: mine.filter.load(batch), lambda _: b"")
        if len(_largest(command)) > 1000
    ]
    zeros = bytes(mine.layout.num_bits // 8)

    def emptied(_: int) -> list[Command]:
        on.client.setrange("segments", HEADER_BYTES, zeros)
        return sent

    def plain(_: int) -> list[Command]:
        return [("SETRANGE", "floor", i * bulk.SEGMENT_BYTES, _largest(each)) for i, each in enumerate(sent)]

    costs = compared(
        on,
        meter,
        {
            "or a segment into an empty filter": emptied,
            "or it again": lambda _: sent,
            "SETRANGE of the same bytes": plain,
        },
        3 if on.quick else 15,
    )
    yield f"A batch is sent as {len(sent)} segments of at most {bulk.SEGMENT_BYTES:,} bytes."
    yield costs_table(costs, len(batch) / len(sent), unit="ns")


def _largest(command: Command) -> bytes:
    return max((part for part in command if isinstance(part, bytes)), key=len)


def _whole(on: Bench, meter: Meter, items: list[str]) -> str:
    runs: dict[str, Callable[[Any], object]] = {
        "load()": lambda _: Ours(on).filter.load(iter(items)),
    }
    if RedisBloom.missing(on) is None:
        runs["BF.MADD in 1,000s"] = lambda _: fill(RedisBloom(on))(items)
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in runs}
    for _ in range(2 if on.quick else 5):
        for name, run in runs.items():
            on.clean()
            cost = meter.of(run, None)[1]
            found[name].append((cost.wall, cost.client, cost.cpu))
    lines = [
        "| all of it, for an item | wall ns | client CPU ns | server CPU ns |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, costs in found.items():
        figures = [statistics.median(each) / len(items) * 1e9 for each in zip(*costs, strict=True)]
        lines.append(f"| {name} | " + " | ".join(f"{figure:.1f}" for figure in figures) + " |")
    return "\n".join(lines)
