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
from bloomredis.operations.sharded import ShardedOperations
from bloomredis.operations.usual_batches import UsualBatch, UsualTests
from bloomredis.protocol.receipts import Lane
from bloomredis.protocol.steps import Command, Op
from bloomredis.protocol.wire import beginning, parts
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


class Known(NamedTuple):
    """A handle, and what is the same in the commands of all items, as it is sent."""

    handle: Handle
    add: bytes  # up to the lane's key
    behind_lane: bytes  # up to the item
    test: bytes  # up to the item
    behind_item: bytes


class UsualAdd(NamedTuple):
    """A prepared add, and the state of the operation that may have to take over."""

    lane: Lane
    usual: Usual
    known: Known
    packed: bytes
    encoded: bytes
    sent: float

    @property
    def command(self) -> Command:
        """The command."""
        return self.usual.command_of_add(self.known.handle, self.lane, self.packed)

    def wire(self) -> list[bytes]:
        """Return the command as it is sent, in one piece."""
        lane, _, known, packed, _, _ = self
        call = lane.call
        return [
            b"%b%b%b$%d\r\n%b\r\n$%d\r\n%b\r\n"
            % (
                *(known.add, lane.wire, known.behind_lane),
                *(len(packed), packed, len(call), call.encode()),
            )
        ]

    def operation(self) -> Op[bool]:
        """Return the operation whose first step is the command, which is sent now."""
        membership = self.usual.filter.membership
        return membership.add_sent(self.lane, self.known.handle, self.packed, self.encoded, self.sent)


class UsualTest(NamedTuple):
    """A prepared test, and what the operation that may have to take over needs."""

    usual: Usual
    known: Known
    packed: bytes
    encoded: bytes

    @property
    def command(self) -> Command:
        """The command."""
        return self.usual.command_of_test(self.known.handle, self.packed)

    def wire(self) -> list[bytes]:
        """Return the command as it is sent, in one piece."""
        _, known, packed, _ = self
        return [b"%b$%d\r\n%b\r\n%b" % (known.test, len(packed), packed, known.behind_item)]

    def operation(self) -> Op[bool]:
        """Return the operation whose first step is the command."""
        return self.usual.filter.membership.test_sent(self.known.handle, self.encoded)

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
        self._add, self._contains = (
            [self.stored.script(verb, version).sha for version in (WHOLE, IN_BLOCKS, LAYERED)]
            for verb in (ADD, CONTAINS)
        )
        self._of_module = isinstance(self.stored, StoredModule)
        self._test: type[UsualTest] = UsualModuleTest if self._of_module else UsualTest
        self._known: Known | None = None

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
        lane.next_call(crc32(packed, handle.check))
        known = self._known
        if known is None or known.handle is not handle:
            known = self._know(handle)
        # As `UsualAdd(…)`, which takes three times as long.
        return tuple.__new__(UsualAdd, (lane, self, known, packed, item, sent))

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
        lane.next_call(crc32(packed, handle.check))
        command = self.command_of_add(handle, lane, packed)
        return UsualBatch(command, lane, self, handle, items, source, sent)

    def test_batch(self, items: Encoded) -> UsualTests | None:
        """Prepare a test of encoded items; None if they are no common ones."""
        handle = self.stored.handle
        if handle is None or self._of_module or not 0 < len(items) <= handle.items:
            return None
        return UsualTests(self.command_of_test(handle, handle.layout.pack(items)), self, handle, items)

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
        packed = encoded if self._of_module else handle.layout.pack_one(encoded)
        known = self._known
        if known is None or known.handle is not handle:
            known = self._know(handle)
        return tuple.__new__(self._test, (self, known, packed, encoded))

    def command_of_add(self, handle: Handle, lane: Lane, packed: bytes) -> Command:
        """Return the command that adds packed items by the last call of a lane."""
        keys = (handle.key, lane.key, *handle.extra)
        sha = self._add[handle.version]
        return ("EVALSHA", sha, b"%d" % len(keys), *keys, handle.identity, packed, lane.call)

    def command_of_test(self, handle: Handle, packed: bytes) -> Command:
        """Return the command that tests packed items; of the module, one item as it is."""
        if self._of_module:
            return test_command(handle, (packed,))
        keys, sha = (handle.key, *handle.extra), self._contains[handle.version]
        return ("EVALSHA", sha, b"%d" % len(keys), *keys, handle.identity, packed)

    def _know(self, handle: Handle) -> Known:
        add = self.command_of_add(handle, Lane("", b"", []), b"")
        test = self.command_of_test(handle, b"")
        at = 2 if self._of_module else len(test) - 1  # of the item
        self._known = known = Known(
            handle,
            beginning(add[:4], more=len(add) - 4),
            parts(add[5:-2]),
            beginning(test[:at], more=len(test) - at),
            parts(test[at + 1 :]),
        )
        return known


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
