"""Workloads that keep the server's processor busy: 16 connections, each with one call under way.

The commands are made before the clock starts, and are sent without redis-py, so that one process can send
more than a server executes.  The figure to compare is the server's processor time of an item: its inverse is
the rate that a server reaches when nothing else limits it.
"""

from __future__ import annotations

import itertools
import select
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import hiredis

from benchmarks.runner.bench import Bench
from benchmarks.runner.measure import Answers, Side, Workload
from benchmarks.sides.ours import Ours, OursByModule
from benchmarks.sides.peer import RATE, present
from benchmarks.sides.redisbloom import RedisBloom
from benchmarks.workloads import checks
from benchmarks.workloads.items import strings

CONNECTIONS: Final = 16
ADD: Final = "16 connections, add of a new item a call, server saturated"
TEST: Final = "16 connections, contains of an item a call, server saturated"
BATCH: Final = "16 connections, add_many of 1,000 new, server saturated"
SET: Final = "SET"

_BATCH: Final = 1_000
Command = tuple[Any, ...]


def workloads(*, quick: bool) -> Iterator[Workload]:
    """Yield the workloads."""
    rounds, calls = (3, 2_000) if quick else (11, 8_000)
    batches = CONNECTIONS * (1 if quick else 2)
    for name, count in ((ADD, calls), (TEST, calls), (BATCH, batches * _BATCH)):
        yield Workload(
            name=name,
            items=partial(_items, count=count),
            sides=partial(_sides, name=name),
            rounds=rounds,
            separate_cpus=True,
        )


def _items(round_: int, *, count: int) -> list[str]:
    return strings("busy", round_, count)


class _Ours:
    """Commands of this library: one filter object a connection, so that each has its own receipts."""

    def __init__(self, bench: Bench, kind: Any) -> None:
        self._peers: list[Ours] = [kind(bench) for _ in range(CONNECTIONS)]
        for peer in self._peers:
            peer.add_many(["opened"])
            peer.contains_each(["opened"])

    def prepare(self, items: Sequence[str]) -> None:
        """Add the items that are to be tested."""
        for start in range(0, len(items), _BATCH):
            self._peers[0].add_many(items[start : start + _BATCH])

    def add(self, item: str, number: int) -> Command:
        """Return the command that adds an item over a connection."""
        return self._answered("add", item, number)

    def test(self, item: str, number: int) -> Command:
        """Return the command that tests it."""
        return self._answered("contains", item, number)

    def add_batch(self, items: Sequence[str], number: int) -> Command:
        """Return the command that adds items together."""
        return self._answered("add_batch", items, number, items)

    def _answered(self, verb: str, *arguments: Any) -> Command:
        """Return the command of a prepared call as if it were answered, so that its lane is used again."""
        what, number, *more = arguments
        own = self._peers[number].filter
        usual: Any = own._usual  # noqa: SLF001 - it prepares the commands
        while (call := getattr(usual, verb)(what, *more)) is None:
            own.add("looks whether the filter is full")  # as it does once in a while
        if verb != "contains":
            call.lane.free.append(call.lane)
        command: Command = call.command
        return command


def _sides(bench: Bench, *, name: str) -> Iterator[Side]:
    for kind in present(bench, Ours, OursByModule):
        ours = _Ours(bench, kind)
        make = {ADD: ours.add, TEST: ours.test, BATCH: ours.add_batch}[name]
        yield _side(bench, name, kind.name, make, ours.prepare)
    if RedisBloom.missing(bench) is None:
        native = RedisBloom(bench)
        verb = {ADD: "BF.ADD", TEST: "BF.EXISTS", BATCH: "BF.MADD"}[name]
        many = name == BATCH
        yield _side(
            bench,
            name,
            native.name,
            lambda item, _: (verb, native.key, *(item if many else (item,))),
            lambda items: [native.add_many(items[at : at + _BATCH]) for at in range(0, len(items), _BATCH)],
        )
    if name == ADD:
        yield _side(bench, name, SET, lambda item, _: ("SET", item, "1"))


def _side(
    bench: Bench,
    workload: str,
    name: str,
    make: Callable[[Any, int], Command],
    prepare: Callable[[Sequence[str]], object] | None = None,
) -> Side:
    streams: list[list[bytes]] = []

    def pack(items: Sequence[str]) -> None:
        if prepare is not None and workload == TEST:
            prepare(items)
        parts: Sequence[Any] = items
        if workload == BATCH:
            parts = [items[start : start + _BATCH] for start in range(0, len(items), _BATCH)]
        streams[:] = [
            [hiredis.pack_command(make(part, number)) for part in parts[number::CONNECTIONS]]
            for number in range(CONNECTIONS)
        ]

    def run(_: Sequence[str]) -> Answers:
        return _exchanged(bench.server.socket, streams)

    def check(items: Sequence[str], replies: Any) -> None:
        if name == SET:
            assert set(replies) == {b"OK"}
        elif workload == TEST:
            checks.all_there(items, _first(replies))
        else:
            checks.mostly_new(RATE)(items, _answers(replies) if workload == BATCH else replies)

    return Side(name=name, prepare=pack, run=run, check=check)


def _exchanged(path: str, streams: Sequence[Sequence[bytes]]) -> list[Any]:
    """Send each stream's commands over a connection of its own, one after the other; return all replies."""
    replies: list[Any] = []
    with ExitStack() as stack:
        poll = select.epoll()
        stack.callback(poll.close)
        waiting = {}
        for commands in streams:
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.connect(path)
            poll.register(server, select.EPOLLIN)
            rest = iter(commands)
            waiting[server.fileno()] = server.recv, server.sendall, hiredis.Reader(), rest
            server.sendall(next(rest))
        left = sum(map(len, streams))
        while left:
            for number, _ in poll.poll():
                receive, send, reader, rest = waiting[number]
                reader.feed(receive(1 << 16))
                if (reply := reader.gets()) is False:
                    continue
                replies.append(reply)
                left -= 1
                if (command := next(rest, None)) is not None:
                    send(command)
    return replies


def _answers(replies: list[Any]) -> Answers:
    """Return the answers in replies to batches: arrays, or strings of characters or bytes."""
    return [flag & 1 for flag in itertools.chain.from_iterable(replies)]


def _first(replies: list[Any]) -> Answers:
    """Return the answers in replies to tests: those of the module tell of its markers too."""
    return [reply[0] if isinstance(reply, list) else reply for reply in replies]
