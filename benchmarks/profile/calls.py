"""Profile of one-item adds and of batches: stages of the client, the wire, the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import hiredis

from benchmarks.profile.raw import Command, Costs, Recorder, compared, seconds
from benchmarks.runner.bench import Bench
from benchmarks.runner.counters import Counters
from benchmarks.sides.peer import CAPACITY, RATE
from benchmarks.sides.redisbloom import RedisBloom
from benchmarks.workloads.items import strings
from bloomredis import BloomFilter
from bloomredis.bits import encoding, hashing
from bloomredis.bits.layout import Layout
from bloomredis.operations.kinds.plain import PlainOperations

Side = Callable[[int], list[Command]]
_BATCH: Final = 1_000
SCALES: Final = {"µs": 1e6, "ns": 1e9}


class Recorded:
    """A filter whose calls can be recorded as their commands."""

    def __init__(self, bench: Bench, name: str, **options: Any) -> None:
        self.recorder = Recorder(bench.client)
        self.filter = BloomFilter(
            self.recorder, name, capacity=CAPACITY, error_rate=RATE, layout=bench.layout, **options
        )
        self.filter.add_many(["loads", "the scripts"])
        self.filter.contains("loads")
        operations = self.filter._operations  # noqa: SLF001 - the open filter's layout is needed
        assert isinstance(operations, PlainOperations)
        assert operations.stored.handle is not None
        self.codec = operations.codec
        self.layout: Layout = operations.stored.handle.bitmap

    def answer(self, command: Command) -> object:
        """Return a reply to an add or a test in which all items are new, or present."""
        items = max(len(part) for part in command if isinstance(part, bytes)) // self.layout.item_bytes
        return b"1" * items if items > 1 else 1

    def commands(self, call: Callable[[], object]) -> list[Command]:
        """Return the commands of a call of the filter."""
        return self.recorder.record(call, self.answer)

    def seconds(self, call: Callable[[], object], times: int) -> float:
        """Return the time of a call in this library alone, without redis-py and the server."""
        return self.recorder.seconds(call, self.answer, times)

    def each(self, verb: str, items: Sequence[str]) -> list[Command]:
        """Return the commands of one-item calls."""
        call = getattr(self.filter, verb)
        return self.recorder.record(lambda: [call(item) for item in items], lambda _: 1)


def one_item(bench: Bench, counters: Counters) -> Iterator[str]:
    """Profile `add(item)`."""
    calls, rounds = (50, 3) if bench.quick else (300, 15)
    ours, unsafe = Recorded(bench, "profile"), Recorded(bench, "unsafe", retry_safe=False)
    sha = bench.client.script_load("return 1")
    floor = ("EVALSHA", sha, 0)
    sides: dict[str, Side] = {
        "PING": lambda _: [("PING",)] * calls,
        "EVALSHA 'return 1'": lambda _: [floor] * calls,
        "add, new": lambda r: ours.each("add", strings("new", r, calls)),
        "add, known": lambda r: ours.each("add", strings("new", r, calls)),
        "add, new, no receipt": lambda r: unsafe.each("add", strings("new", r, calls)),
        "contains, there": lambda r: ours.each("contains", strings("new", r, calls)),
    }
    if RedisBloom.missing(bench) is None:
        key = RedisBloom(bench).key
        sides["BF.ADD, new"] = lambda r: [("BF.ADD", key, item) for item in strings("new", r, calls)]
    costs = compared(bench, counters, sides, rounds)
    execute: Any = bench.client.execute_command
    names = iter(strings("whole", 0, calls * 7))
    stages = {
        **_client_stages(bench, ours, "profile-000000000001"),
        "redis-py, all of it (EVALSHA 'return 1', less its bytes by socket)": seconds(
            lambda: execute(*floor), calls
        )
        - costs["EVALSHA 'return 1'"].wall,
        "**`add()`, all of it**": seconds(lambda: ours.filter.add(next(names)), calls),
    }
    yield "### One-item add"
    yield stages_table(stages)
    yield costs_table(costs, 1)


def _client_stages(bench: Bench, ours: Recorded, item: str) -> dict[str, float]:
    command = ours.each("add", [item])[0]
    connection: Any = bench.client.connection_pool.get_connection()
    reader = hiredis.Reader()

    def parse() -> None:
        reader.feed(b":1\r\n")
        reader.gets()

    stages = {
        "this library, all of it": ours.recorder.seconds(lambda: ours.filter.add(item), lambda _: 1, 2000),
        "of which: encode the item": seconds(partial(encoding.encode, item), 5000),
        "of which: hash it and pack its bits": seconds(partial(ours.layout.pack_one, item.encode()), 5000),
        "redis-py packs the command": seconds(lambda: connection.pack_command(*command), 5000),
        "hiredis reads the reply": seconds(parse, 5000),
    }
    bench.client.connection_pool.release(connection)
    return stages


def batch(bench: Bench, counters: Counters) -> Iterator[str]:
    """Profile `add_many` of 1,000 items."""
    rounds = 3 if bench.quick else 15
    ours, unsafe = Recorded(bench, "profile"), Recorded(bench, "unsafe", retry_safe=False)
    items = strings("batch", 0, _BATCH)
    commands = ours.commands(lambda: ours.filter.add_many(items))
    connection: Any = bench.client.connection_pool.get_connection()
    stages = {
        "this library, all of it": ours.seconds(lambda: ours.filter.add_many(items), 30),
        "of which: encode the items": seconds(lambda: encoding.encode_all(items), 100),
        "of which: hash them": seconds(lambda: hashing.digests(items), 100),
        "of which: hash them and pack their bits": seconds(lambda: ours.layout.pack(items), 100),
        "redis-py packs the commands": seconds(
            lambda: [connection.pack_command(*command) for command in commands], 100
        ),
    }
    bench.client.connection_pool.release(connection)
    costs = compared(bench, counters, _batch_sides(bench, ours, unsafe, commands), rounds)
    names = iter([strings("whole", i, _BATCH) for i in range(10 * 7)])
    stages["**`add_many()`, all of it**"] = seconds(lambda: ours.filter.add_many(next(names)), 10)
    yield f"### add_many of 1,000 ({len(commands)} script calls), for an item"
    yield stages_table({name: taken / _BATCH for name, taken in stages.items()})
    yield costs_table(costs, _BATCH / len(commands), {"BF.MADD, new": _BATCH})


def _batch_sides(
    bench: Bench, ours: Recorded, unsafe: Recorded, commands: Sequence[Command]
) -> dict[str, Side]:
    here = Path(__file__).parent
    nothing, probes, blocks = map(
        bench.client.script_load,
        ("return 1", *((here / f"floor_{name}.lua").read_text() for name in ("probes", "blocks"))),
    )
    bench.client.setrange("floor", 1 << 20, b"\0")
    calls = len(commands)
    largest = max((part for part in commands[0] if isinstance(part, bytes)), key=len)
    items = _BATCH // calls

    def sent(filter_: Recorded, verb: str, tag: str) -> Side:
        call = getattr(filter_.filter, verb)
        return lambda r: filter_.commands(lambda: call(strings(tag, r, _BATCH)))

    sides: dict[str, Side] = {
        "EVALSHA 'return 1', the same argument": lambda _: [("EVALSHA", nothing, 0, largest)] * calls,
        f"only SETBIT, {ours.layout.num_hashes} an item": lambda _: (
            [("EVALSHA", probes, 1, "floor", items * ours.layout.num_hashes)] * calls
        ),
        "only GETRANGE and SETRANGE of 32 bytes, one an item": lambda _: (
            [("EVALSHA", blocks, 1, "floor", items)] * calls
        ),
        "add_many, new": sent(ours, "add_many", "new"),
        "add_many, known": sent(ours, "add_many", "new"),
        "add_many, new, no receipts": sent(unsafe, "add_many", "new"),
        "contains_many, there": sent(ours, "contains_many", "new"),
    }
    if RedisBloom.missing(bench) is None:
        key = RedisBloom(bench).key
        sides["BF.MADD, new"] = lambda r: [("BF.MADD", key, *strings("new", r, _BATCH))]
    return sides


def stages_table(stages: Mapping[str, float], unit: str = "µs") -> str:
    """Format the stages of the client as Markdown."""
    rows = [f"| {name} | {taken * SCALES[unit]:.2f} |" for name, taken in stages.items()]
    return "\n".join([f"| client | {unit} |", "| --- | ---: |", *rows])


def costs_table(
    costs: Mapping[str, Costs],
    items: float,
    others: Mapping[str, float] | None = None,
    unit: str = "µs",
) -> str:
    """Format costs per item as Markdown; a command carries `items` items, or the number in `others`."""
    lines = [
        f"| bytes by socket, no redis-py | round trip {unit} | server CPU {unit} | in the command {unit} |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, cost in costs.items():
        scale = SCALES[unit] / (others or {}).get(name, items)
        figures = (cost.wall * scale, cost.cpu * scale, cost.inside * scale)
        lines.append(f"| {name} | " + " | ".join(f"{figure:.2f}" for figure in figures) + " |")
    return "\n".join(lines)
