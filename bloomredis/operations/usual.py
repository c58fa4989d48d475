"""Common calls of a script, prepared without generators: the driver sends the command of the first step.

In any other case nothing is prepared, and the operation runs.  If sending fails, is interrupted, or the
answer is late, the operation takes over with that command as its first step, so that every decision stays in
one place.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple
from zlib import crc32

from bloomredis.bits.batch import Encoded
from bloomredis.operations.filter import FilterOperations
from bloomredis.operations.membership import ADD, CONTAINS
from bloomredis.operations.outcomes import Answers
from bloomredis.operations.sharded import ShardedOperations
from bloomredis.protocol.receipts import RECEIPT_SECONDS, Lane, give_back
from bloomredis.protocol.replies import Reply, flags_of
from bloomredis.protocol.steps import Command, Op
from bloomredis.stored.base import UNBOUNDED
from bloomredis.stored.handle import IN_BLOCKS, LAYERED, WHOLE, Handle
from bloomredis.stored.module import StoredModule
from bloomredis.stored.module_filter import test_command


def _plain(item: Any) -> bytes | None:
    """Encode a str or bytes; None for any other item, which the operation encodes or refuses."""
    kind = type(item)
    if kind is str:
        try:
            encoded: bytes = item.encode()
        except UnicodeEncodeError:
            return None
        return encoded
    return item if kind is bytes else None


class UsualAdd(NamedTuple):
    """A prepared add: its command, and the state of the operation that may have to take over."""

    command: Command
    lane: Lane
    usual: Usual
    handle: Handle
    encoded: bytes
    sent: float

    def operation(self) -> Op[bool]:
        """Return the operation whose first step is the command, which is sent now."""
        membership, packed = self.usual.filter.membership, self.command[-2]
        return membership.add_sent(self.lane, self.handle, packed, self.encoded, self.sent)


class UsualTest(NamedTuple):
    """A prepared test: its command, and what the operation that may have to take over needs."""

    command: Command
    usual: Usual
    handle: Handle
    encoded: bytes

    def operation(self) -> Op[bool]:
        """Return the operation whose first step is the command."""
        return self.usual.filter.membership.test_sent(self.handle, self.encoded)

    def answer(self, reply: Any) -> bool | None:
        """Return the answer in a reply; None if the operation has to find it."""
        return bool(reply == 1)


class UsualModuleTest(UsualTest):
    """A prepared test of an item and of the markers of a filter of the server's module."""

    def answer(self, reply: Any) -> bool | None:
        """Return the answer in a reply; None where a marker is missing."""
        there = reply[0] == 1
        return there if reply.count(True) == len(reply) - (not there) else None


class UsualBatch(NamedTuple):
    """A prepared add of several items in one script: as `UsualAdd`."""

    command: Command
    lane: Lane
    usual: Usual
    handle: Handle
    items: Encoded
    source: Sequence[Any]
    sent: float

    def operation(self) -> Op[list[bool]]:
        """Return the operation whose first step is the command, which is sent now."""
        return self.usual.filter.membership.add(self.items, self.source, self)

    def answers(self, reply: Reply) -> Answers | None:
        """Return the answers in a reply; None if the operation has to see it."""
        flags = flags_of(reply)
        if len(flags) != len(self.items) or time.monotonic() - self.sent > RECEIPT_SECONDS:
            return None
        give_back(self.lane)
        self.usual.added(sum(flags))
        items, keep, generation = self.items, self.usual.filter.ledger.keep, self.handle.generation
        return Answers(lambda i, answer: keep(items[i], generation, answer=answer), flags)


class UsualTests(NamedTuple):
    """A prepared test of several items in one script."""

    command: Command
    usual: Usual
    handle: Handle
    items: Encoded

    def operation(self) -> Op[list[bool]]:
        """Return the operation whose first step is the command."""
        return self.usual.filter.membership.test(self.items, self.handle)

    def answers(self, reply: Reply) -> list[bool]:
        """Return the answers in a reply."""
        return flags_of(reply)


class Usual:
    """The common calls of one filter object over one server."""

    def __init__(self, operations: FilterOperations) -> None:
        self.filter = operations
        self.stored = operations.stored
        self._ledger = operations.ledger
        self._lanes = operations.lanes
        self._fullness = operations.fullness
        self._add, self._contains = (
            [self.stored.script(verb, version).sha for version in (WHOLE, IN_BLOCKS, LAYERED)]
            for verb in (ADD, CONTAINS)
        )
        self._of_module = isinstance(self.stored, StoredModule)

    def add(self, item: Any) -> UsualAdd | None:
        """Prepare an add; None if it is no common one."""
        encoded = _plain(item)
        return None if encoded is None else self.add_encoded(encoded)

    def add_encoded(self, item: bytes) -> UsualAdd | None:
        """Prepare an add of an item that has been encoded."""
        handle, sent = self.stored.handle, time.monotonic()
        if handle is None or item in self._ledger.items:
            return None
        if self._fullness is not None and sent > self._fullness.until:
            return None
        lanes = self._lanes.free
        lane = lanes.pop() if lanes else self._lanes.take()
        packed = handle.layout.pack_one(item)
        call = lane.next_call(crc32(packed, handle.check))
        sha = self._add[handle.version]
        if handle.extra:
            keys = (handle.key, lane.key, *handle.extra)
            command: Command = ("EVALSHA", sha, b"%d" % len(keys), *keys, handle.identity, packed, call)
        else:
            command = ("EVALSHA", sha, b"2", handle.key, lane.key, handle.identity, packed, call)
        # As `UsualAdd(…)`, which takes three times as long.
        return tuple.__new__(UsualAdd, (command, lane, self, handle, item, sent))

    def add_batch(self, items: Encoded, source: Sequence[Any]) -> UsualBatch | None:
        """Prepare an add of encoded items; None if they are no common ones."""
        handle, sent = self.stored.handle, time.monotonic()
        if handle is None or self._ledger.items or not 0 < len(items) <= handle.items:
            return None
        if self._fullness is not None and sent > self._fullness.until:
            return None
        lanes = self._lanes.free
        lane = lanes.pop() if lanes else self._lanes.take()
        packed = handle.layout.pack(items)
        keys = (handle.key, lane.key, *handle.extra)
        call = lane.next_call(crc32(packed, handle.check))
        sha = self._add[handle.version]
        command: Command = ("EVALSHA", sha, b"%d" % len(keys), *keys, handle.identity, packed, call)
        return UsualBatch(command, lane, self, handle, items, source, sent)

    def test_batch(self, items: Encoded) -> UsualTests | None:
        """Prepare a test of encoded items; None if they are no common ones."""
        handle = self.stored.handle
        if handle is None or self._of_module or not 0 < len(items) <= handle.items:
            return None
        keys, packed = (handle.key, *handle.extra), handle.layout.pack(items)
        sha = self._contains[handle.version]
        command: Command = ("EVALSHA", sha, b"%d" % len(keys), *keys, handle.identity, packed)
        return UsualTests(command, self, handle, items)

    def added(self, new: int) -> None:
        """Count new items; react to a filter whose capacity is reached, unless nobody watches over it."""
        self.stored.left -= new
        if self.stored.left > 0:
            return
        if self._fullness is None:
            self.stored.left = UNBOUNDED
        else:
            self._fullness.passed()

    def contains(self, item: Any) -> UsualTest | None:
        """Prepare a test; None if it is no common one."""
        encoded, handle = _plain(item), self.stored.handle
        if encoded is None or handle is None:
            return None
        if self._of_module:
            return UsualModuleTest(test_command(handle, (encoded,)), self, handle, encoded)
        packed = handle.layout.pack_one(encoded)
        sha = self._contains[handle.version]
        if handle.extra:
            keys = (handle.key, *handle.extra)
            command: Command = ("EVALSHA", sha, b"%d" % len(keys), *keys, handle.identity, packed)
        else:
            command = ("EVALSHA", sha, b"1", handle.key, handle.identity, packed)
        return tuple.__new__(UsualTest, (command, self, handle, encoded))


class UsualSharded:
    """The common calls of a sharded filter on one server: those of one item."""

    def __init__(self, operations: ShardedOperations) -> None:
        self._operations = operations
        self._shards: dict[Any, Usual] = {}

    def add(self, item: Any) -> UsualAdd | None:
        """Prepare an add; None if it is no common one."""
        encoded = _plain(item)
        part = None if encoded is None else self._operations.part_of(encoded)
        if encoded is None or part is None:
            return None
        usual = self._shards.get(part)
        if usual is None:
            usual = self._shards[part] = Usual(part)
        return usual.add_encoded(encoded)

    def contains(self, item: Any) -> None:
        """Prepare nothing."""

    def add_batch(self, items: Encoded, source: Sequence[Any]) -> None:
        """Prepare nothing: the items are in several shards."""

    def test_batch(self, items: Encoded) -> None:
        """Prepare nothing."""


def usual(operations: Any) -> Usual | UsualSharded | None:
    """Return the common calls of a filter; None if it has none."""
    options = operations.options
    if not options.retry_safe or options.wait is not None or not operations.codec.is_plain:
        return None
    if isinstance(operations, ShardedOperations):
        return UsualSharded(operations)
    if (
        isinstance(operations, FilterOperations)
        and operations.cache is None
        and not operations.stored.only_read
    ):
        return Usual(operations)
    return None
