"""Workloads that saturate the server's processor: 16 connections, each with one call in flight.

The commands are made before the clock starts, and are sent without redis-py, so that one process can send
more than a server executes. The figure to compare is the server's processor time for an item: its inverse
is the rate that a server reaches when nothing else limits it.
"""

from __future__ import annotations

import itertools
import select
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Final, NamedTuple

import hiredis

from benchmarks.runner.bench import Bench
from benchmarks.runner.measure import Answers, Side, Workload
from benchmarks.sides.ours import Ours, OursByModule
from benchmarks.sides.peer import RATE, present
from benchmarks.sides.redisbloom import RedisBloom
from benchmarks.workloads import checks
from benchmarks.workloads.items import strings
from bloomredis.stored.state.item_calls import Add, Contains, ContainsByReading

CONNECTIONS: Final = 16
ADD: Final = "16 connections, add of a new item a call, server saturated"
TEST: Final = "16 connections, contains of an item a call, server saturated"
BATCH: Final = "16 connections, add_many of 1,000 new, server saturated"
SET: Final = "SET"

_BATCH: Final = 1_000


class _Call(NamedTuple):
    """Commands that are sent together: their bytes, their number, and the meaning of the replies."""

    sent: bytes
    replies: int
    answer: Callable[[Any], Any] = lambda reply: reply

    @classmethod
    def of(cls, command: tuple[Any, ...]) -> _Call:
        """Return the call of one command, whose reply is the answer."""
        return cls(hiredis.pack_command(command), 1)


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
    """Calls of this library: one filter object for each connection, so that each has its own receipts."""

    def __init__(self, bench: Bench, kind: Any) -> None:
        self._peers: list[Ours] = [kind(bench) for _ in range(CONNECTIONS)]
        for peer in self._peers:
            peer.add_many(["opened"])
            peer.contains_each(["opened"])

    def prepare(self, items: Sequence[str]) -> None:
        """Add the items that are tested later."""
        for start in range(0, len(items), _BATCH):
            self._peers[0].add_many(items[start : start + _BATCH])

    def add(self, item: str, number: int) -> _Call:
        """Return the call that adds an item over a connection."""
        return self._call("add", number, item)

    def test(self, item: str, number: int) -> _Call:
        """Return the call that tests an item."""
        return self._call("contains", number, item)

    def add_batch(self, items: Sequence[str], number: int) -> _Call:
        """Return the call that adds items in a batch."""
        return self._call("add_many", number, items)

    def _call(self, verb: str, number: int, asked: Any) -> _Call:
        """Return an operation's first call; it then gets a reply, so that its session is reused."""
        operations: Any = self._peers[number].filter._operations  # noqa: SLF001 - it makes the calls
        operation = getattr(operations, verb)(asked)
        call = next(operation)
        assert isinstance(call, Add | Contains | ContainsByReading), f"{verb} begins with {call!r}"
        packed, replies = call.wire() or ([], 0)
        if not isinstance(call, Add):
            operation.close()
            return _Call(b"".join(packed), replies, call.answer_in)
        with suppress(StopIteration):
            operation.send(1 if verb == "add" else b"1" * len(asked))
        return _Call(b"".join(packed), replies)


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
            lambda item, _: _Call.of((verb, native.key, *(item if many else (item,)))),
            lambda items: [native.add_many(items[at : at + _BATCH]) for at in range(0, len(items), _BATCH)],
        )
    if name == ADD:
        yield _side(bench, name, SET, lambda item, _: _Call.of(("SET", item, "1")))


def _side(
    bench: Bench,
    workload: str,
    name: str,
    make: Callable[[Any, int], _Call],
    prepare: Callable[[Sequence[str]], object] | None = None,
) -> Side:
    streams: list[list[_Call]] = []

    def pack(items: Sequence[str]) -> None:
        if prepare is not None and workload == TEST:
            prepare(items)
        parts: Sequence[Any] = items
        if workload == BATCH:
            parts = [items[start : start + _BATCH] for start in range(0, len(items), _BATCH)]
        streams[:] = [
            [make(part, number) for part in parts[number::CONNECTIONS]] for number in range(CONNECTIONS)
        ]

    def run(_: Sequence[str]) -> Answers:
        return _exchanged(bench.server.socket, streams)

    def check(items: Sequence[str], replies: Any) -> None:
        if name == SET:
            assert {reply for _, reply in replies} == {b"OK"}
        elif workload == TEST:
            checks.all_there(items, [call.answer(reply) for call, reply in replies])
        else:
            answers = [reply for _, reply in replies]
            checks.mostly_new(RATE)(items, _answers(answers) if workload == BATCH else answers)

    return Side(name=name, prepare=pack, run=run, check=check)


def _exchanged(path: str, streams: Sequence[Sequence[_Call]]) -> list[tuple[_Call, Any]]:
    """Send each stream's calls over its own connection, one by one; return them with replies."""
    done: list[tuple[_Call, Any]] = []
    with ExitStack() as stack:
        poll = select.epoll()
        stack.callback(poll.close)
        waiting: dict[int, tuple[socket.socket, Any, deque[_Call], list[Any]]] = {}
        for calls in streams:
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.connect(path)
            poll.register(server, select.EPOLLIN)
            left = deque(calls)
            waiting[server.fileno()] = server, hiredis.Reader(), left, []
            server.sendall(left[0].sent)
        total = sum(map(len, streams))
        while len(done) < total:
            for number, _ in poll.poll():
                server, reader, left, replies = waiting[number]
                reader.feed(server.recv(1 << 16))
                while (reply := reader.gets()) is not False:
                    replies.append(reply)
                if len(replies) < left[0].replies:
                    continue
                call = left.popleft()
                done.append((call, replies[0] if call.replies == 1 else replies[:]))
                replies.clear()
                if left:
                    server.sendall(left[0].sent)
    return done


def _answers(replies: list[Any]) -> Answers:
    """Return the answers in replies to batches: arrays, or strings of characters or bytes."""
    return [flag & 1 for flag in itertools.chain.from_iterable(replies)]
