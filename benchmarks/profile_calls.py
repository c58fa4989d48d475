"""Where the time of one-item adds and of batches goes: stages of the client, the wire, the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import hiredis

from benchmarks.bench import Bench
from benchmarks.items import strings
from benchmarks.meters import Meter
from benchmarks.peers import CAPACITY, RATE, RedisBloom
from benchmarks.raw import Command, Costs, Recorder, compared, seconds
from bloomredis import BloomFilter
from bloomredis.bits import encoding, hashing
from bloomredis.bits.layout import Layout

Side = Callable[[int], list[Command]]
_BATCH: Final = 1_000
SCALES: Final = {"µs": 1e6, "ns": 1e9}


class Recorded:
    """A filter whose calls are turned into the commands that they send."""

    def __init__(self, on: Bench, name: str, **options: Any) -> None:
        self.recorder = Recorder(on.client)
        self.filter = BloomFilter(
            self.recorder, name, capacity=CAPACITY, error_rate=RATE, layout=on.layout, **options
        )
        self.filter.add_many(["the server learns", "the scripts"])
        self.filter.contains("the server learns")
        opened = self.filter._operations._stored.handle  # noqa: SLF001 - it is open, and the layout is asked for
        assert opened is not None
        self.opened = opened
        self.layout: Layout = opened.bitmap

    def answer(self, command: Command) -> object:
        """Answer an add or a test as if all items were new, or there."""
        items = max(len(part) for part in command if isinstance(part, bytes)) // self.layout.item_bytes
        return b"1" * items if items > 1 else 1

    def commands(self, call: Callable[[], object]) -> list[Command]:
        """Return what a call of the filter sends."""
        return self.recorder.record(call, self.answer)

    def seconds(self, call: Callable[[], object], times: int) -> float:
        """Return what a call takes here, without redis-py and the server."""
        return self.recorder.seconds(call, self.answer, times)

    def each(self, verb: str, items: Sequence[str]) -> list[Command]:
        """Return what one-item calls send."""
        call = getattr(self.filter, verb)
        return self.recorder.record(lambda: [call(item) for item in items], lambda _: 1)


def one_item(on: Bench, meter: Meter) -> Iterator[str]:
    """Profile `add(item)`."""
    calls, rounds = (50, 3) if on.quick else (300, 15)
    mine, unsafe = Recorded(on, "profile"), Recorded(on, "unsafe", retry_safe=False)
    sha = on.client.script_load("return 1")
    floor = ("EVALSHA", sha, 0)
    sides: dict[str, Side] = {
        "PING": lambda _: [("PING",)] * calls,
        "EVALSHA 'return 1'": lambda _: [floor] * calls,
        "add, new": lambda r: mine.each("add", strings("new", r, calls)),
        "add, known": lambda r: mine.each("add", strings("new", r, calls)),
        "add, new, no receipt": lambda r: unsafe.each("add", strings("new", r, calls)),
        "contains, there": lambda r: mine.each("contains", strings("new", r, calls)),
    }
    if RedisBloom.missing(on) is None:
        key = RedisBloom(on).key
        sides["BF.ADD, new"] = lambda r: [("BF.ADD", key, item) for item in strings("new", r, calls)]
    costs = compared(on, meter, sides, rounds)
    execute: Any = on.client.execute_command
    names = iter(strings("whole", 0, calls * 7))
    stages = {
        **_client_stages(on, mine, "profile-000000000001"),
        "redis-py, all of it (EVALSHA 'return 1', less its bytes by socket)": seconds(
            lambda: execute(*floor), calls
        )
        - costs["EVALSHA 'return 1'"].wall,
        "**`add()`, all of it**": seconds(lambda: mine.filter.add(next(names)), calls),
    }
    yield "### One-item add"
    yield stages_table(stages)
    yield costs_table(costs, 1)


def _client_stages(on: Bench, mine: Recorded, item: str) -> dict[str, float]:
    command = mine.each("add", [item])[0]
    connection: Any = on.client.connection_pool.get_connection()
    reader = hiredis.Reader()

    def parse() -> None:
        reader.feed(b":1\r\n")
        reader.gets()

    stages = {
        "this library, all of it": mine.recorder.seconds(lambda: mine.filter.add(item), lambda _: 1, 2000),
        "of which: encode the item": seconds(partial(encoding.encode, item), 5000),
        "of which: hash it and pack its bits": seconds(partial(mine.layout.pack_one, item.encode()), 5000),
        "redis-py packs the command": seconds(lambda: connection.pack_command(*command), 5000),
        "hiredis reads the reply": seconds(parse, 5000),
    }
    on.client.connection_pool.release(connection)
    return stages


def batch(on: Bench, meter: Meter) -> Iterator[str]:
    """Profile `add_many` of 1,000 items."""
    rounds = 3 if on.quick else 15
    mine, unsafe = Recorded(on, "profile"), Recorded(on, "unsafe", retry_safe=False)
    items = strings("batch", 0, _BATCH)
    commands = mine.commands(lambda: mine.filter.add_many(items))
    connection: Any = on.client.connection_pool.get_connection()
    stages = {
        "this library, all of it": mine.seconds(lambda: mine.filter.add_many(items), 30),
        "of which: encode the items": seconds(lambda: encoding.encode_all(items), 100),
        "of which: hash them": seconds(lambda: hashing.digests(items), 100),
        "of which: hash them and pack their bits": seconds(lambda: mine.layout.pack(items), 100),
        "redis-py packs the commands": seconds(
            lambda: [connection.pack_command(*command) for command in commands], 100
        ),
    }
    on.client.connection_pool.release(connection)
    costs = compared(on, meter, _batch_sides(on, mine, unsafe, commands), rounds)
    names = iter([strings("whole", i, _BATCH) for i in range(10 * 7)])
    stages["**`add_many()`, all of it**"] = seconds(lambda: mine.filter.add_many(next(names)), 10)
    yield f"### add_many of 1,000 ({len(commands)} script calls), for an item"
    yield stages_table({name: taken / _BATCH for name, taken in stages.items()})
    yield costs_table(costs, _BATCH / len(commands), {"BF.MADD, new": _BATCH})


def _batch_sides(on: Bench, mine: Recorded, unsafe: Recorded, commands: Sequence[Command]) -> dict[str, Side]:
    here = Path(__file__).parent
    nothing, probes, blocks = map(
        on.client.script_load,
        ("return 1", *((here / f"floor_{name}.lua").read_text() for name in ("probes", "blocks"))),
    )
    on.client.setrange("floor", 1 << 20, b"\0")
    calls = len(commands)
    largest = max((part for part in commands[0] if isinstance(part, bytes)), key=len)
    items = _BATCH // calls

    def sent(filter_: Recorded, verb: str, tag: str) -> Side:
        call = getattr(filter_.filter, verb)
        return lambda r: filter_.commands(lambda: call(strings(tag, r, _BATCH)))

    sides: dict[str, Side] = {
        "EVALSHA 'return 1', the same argument": lambda _: [("EVALSHA", nothing, 0, largest)] * calls,
        f"only SETBIT, {mine.layout.num_hashes} an item": lambda _: (
            [("EVALSHA", probes, 1, "floor", items * mine.layout.num_hashes)] * calls
        ),
        "only GETRANGE and SETRANGE of 32 bytes, one an item": lambda _: (
            [("EVALSHA", blocks, 1, "floor", items)] * calls
        ),
        "add_many, new": sent(mine, "add_many", "new"),
        "add_many, known": sent(mine, "add_many", "new"),
        "add_many, new, no receipts": sent(unsafe, "add_many", "new"),
        "contains_many, there": sent(mine, "contains_many", "new"),
    }
    if RedisBloom.missing(on) is None:
        key = RedisBloom(on).key
        sides["BF.MADD, new"] = lambda r: [("BF.MADD", key, *strings("new", r, _BATCH))]
    return sides


def stages_table(stages: Mapping[str, float], unit: str = "µs") -> str:
    """Return what the client does, in Markdown."""
    rows = [f"| {name} | {taken * SCALES[unit]:.2f} |" for name, taken in stages.items()]
    return "\n".join([f"| client | {unit} |", "| --- | ---: |", *rows])


def costs_table(
    costs: Mapping[str, Costs],
    items: float,
    others: Mapping[str, float] | None = None,
    unit: str = "µs",
) -> str:
    """Return what commands cost that carry so many items (`others`: those that carry another number)."""
    lines = [
        f"| bytes by socket, no redis-py | round trip {unit} | server CPU {unit} | in the command {unit} |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, cost in costs.items():
        scale = SCALES[unit] / (others or {}).get(name, items)
        figures = (cost.wall * scale, cost.cpu * scale, cost.inside * scale)
        lines.append(f"| {name} | " + " | ".join(f"{figure:.2f}" for figure in figures) + " |")
    return "\n".join(lines)
