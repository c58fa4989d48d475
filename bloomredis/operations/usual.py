"""Common calls of one item, prepared without generators: the driver sends the command of the first step.

In any other case nothing is prepared, and the operation runs.  If sending fails, is interrupted, or the
answer is late, the operation takes over with that command as its first step, so that every decision stays in
one place.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple
from zlib import crc32

from bloomredis.operations.filter import FilterOperations
from bloomredis.operations.membership import ADD, CONTAINS
from bloomredis.operations.sharded import ShardedOperations
from bloomredis.protocol.receipts import Lane
from bloomredis.protocol.steps import Command, Op
from bloomredis.stored.base import UNBOUNDED
from bloomredis.stored.handle import Handle
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


class Usual:
    """The common calls of one filter object over one server."""

    def __init__(self, operations: FilterOperations) -> None:
        self.filter = operations
        self.stored = operations.stored
        self._ledger = operations.ledger
        self._lanes = operations.lanes
        self._fullness = operations.fullness
        self._add = self.stored.script(ADD).sha
        self._contains = self.stored.script(CONTAINS).sha
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
        keys = (handle.key, lane.key, *handle.extra)
        packed = handle.layout.pack_one(item)
        call = lane.next_call(crc32(packed, handle.check))
        command: Command = ("EVALSHA", self._add, b"%d" % len(keys), *keys, handle.identity, packed, call)
        return UsualAdd(command, lane, self, handle, item, sent)

    def passed(self) -> None:
        """React to a filter whose capacity is reached, unless nobody watches over it."""
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
        keys = (handle.key, *handle.extra)
        command: Command = ("EVALSHA", self._contains, b"%d" % len(keys), *keys, handle.identity, packed)
        return UsualTest(command, self, handle, encoded)


class UsualSharded:
    """The common calls of a sharded filter on one server."""

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
