"""Common calls, prepared without generators: the driver sends the command of the first step.

In any other case nothing is prepared, and the operation runs.  If sending fails, is interrupted, or the
answer is late, the operation takes over with that command as its first step, so that every decision stays in
one place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from bloomredis.bits.batch import Encoded
from bloomredis.bits.blocked import Blocked
from bloomredis.operations.filter import FilterOperations
from bloomredis.operations.membership import ADD, CONTAINS
from bloomredis.operations.sharded import ShardedOperations
from bloomredis.operations.usual_batches import UsualBatch, UsualTests
from bloomredis.operations.usual_contains import UsualModuleTest, UsualReading, UsualTest, read_identity
from bloomredis.protocol import clock, forks
from bloomredis.protocol.receipts import Lane, give_back
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
    test: bytes  # up to the item, or up to the bounds of a block
    behind_item: bytes
    of_test: type[UsualTest]
    pack: Callable[[bytes], Any]  # an item for a test
    block_bytes: int = 0  # of the blocks that a `UsualReading` reads


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

    def wire(self) -> tuple[list[bytes], int]:
        """Return the command as it is sent, in one piece, and the number of replies."""
        lane, _, known, packed, _, _ = self
        call = lane.call
        wire = b"%b%b%b$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
            *(known.add, lane.wire, known.behind_lane),
            *(len(packed), packed, len(call), call.encode()),
        )
        return [wire], 1

    def operation(self) -> Op[bool]:
        """Return the operation whose first step is the command, which is sent now."""
        usual, handle = self.usual, self.known.handle
        new = yield from usual.filter.membership.add_sent(
            self.lane, handle, self.packed, self.encoded, self.sent
        )
        if usual.cache is not None:
            usual.cache.learn(handle, self.encoded, self.sent, there=True, new=new)
        return new


class Usual:
    """The common calls of one filter object over one server."""

    def __init__(self, operations: FilterOperations, *, reads: bool) -> None:
        self.filter = operations
        self._reads = reads
        self.stored = operations.stored
        self._ledger = operations.ledger
        self._lanes = operations.lanes
        self._fullness = operations.fullness
        self._add, self._contains = (
            [self.stored.script(verb, version).sha for version in (WHOLE, IN_BLOCKS, LAYERED)]
            for verb in (ADD, CONTAINS)
        )
        self._of_module = isinstance(self.stored, StoredModule)
        self.cache = operations.cache
        self._known: Known | None = None

    def add(self, item: Any) -> UsualAdd | None:
        """Prepare an add; None if it is no common one."""
        encoded = _plain(item)
        return None if encoded is None else self.add_encoded(encoded)

    def add_encoded(self, item: bytes) -> UsualAdd | None:
        """Prepare an add of an item that has been encoded."""
        forks.check()
        handle, sent = self.stored.handle, clock.now()
        if handle is None or item in self._ledger.items:
            return None
        if self._fullness is not None and sent > self._fullness.until:
            return None
        if self.cache is not None and not self.cache.is_ready(handle, sent):
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
        forks.check()
        handle, sent = self.stored.handle, clock.now()
        if handle is None or self.cache or self._ledger.items or not 0 < len(items) <= handle.items:
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
        forks.check()
        handle = self.stored.handle
        if handle is None or self.cache or self._of_module or not 0 < len(items) <= handle.items:
            return None
        return UsualTests(self.command_of_test(handle, handle.layout.pack(items)), self, handle, items)

    def added(self, call: UsualAdd | UsualBatch, new: int) -> None:
        """Note how many items of an add were new, and react to a filter whose capacity is reached."""
        give_back(call.lane)
        self.stored.left -= new
        if self.stored.left <= 0:
            if self._fullness is None:  # nobody watches over it
                self.stored.left = UNBOUNDED
            else:
                self._fullness.passed()
        if self.cache is not None and isinstance(call, UsualAdd):
            self.cache.learn(call.known.handle, call.encoded, call.sent, there=True, new=bool(new))

    def contains(self, item: Any) -> UsualTest | None:
        """Prepare a test; None if it is no common one."""
        encoded = _plain(item)
        return None if encoded is None else self.test_encoded(encoded)

    def test_encoded(self, item: bytes) -> UsualTest | None:
        """Prepare a test of an item that has been encoded."""
        forks.check()
        handle, sent = self.stored.handle, clock.now()
        if handle is None or (self.cache is not None and not self.cache.is_ready(handle, sent)):
            return None
        known = self._known
        if known is None or known.handle is not handle:
            known = self._know(handle)
        return tuple.__new__(known.of_test, (self, known, known.pack(item), item, sent))

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
        self._known = known = Known(
            handle, beginning(add[:4], more=len(add) - 4), parts(add[5:-2]), *self._know_test(handle)
        )
        return known

    def _know_test(self, handle: Handle) -> tuple[Any, ...]:
        layout = handle.layout
        if self._reads and isinstance(layout, Blocked) and handle.version == IN_BLOCKS:
            bounds = beginning(("GETRANGE", handle.key), more=2)
            identity = beginning(read_identity(handle.key), more=0)
            return bounds, identity, UsualReading, layout.masks, layout.block_bytes
        test = self.command_of_test(handle, b"")
        at = 2 if self._of_module else len(test) - 1  # of the item
        kind, pack = (UsualModuleTest, bytes) if self._of_module else (UsualTest, layout.pack_one)
        return beginning(test[:at], more=len(test) - at), parts(test[at + 1 :]), kind, pack


class _OfShards(dict[Any, Usual]):
    """The common calls of each shard that has been used."""

    def __init__(self, *, reads: bool) -> None:
        super().__init__()
        self._reads = reads

    def __missing__(self, part: Any) -> Usual:
        made = self[part] = Usual(part, reads=self._reads)
        return made


class UsualSharded:
    """The common calls of a sharded filter on one server: those of one item."""

    def __init__(self, operations: ShardedOperations, *, reads: bool) -> None:
        self._operations = operations
        self._shards = _OfShards(reads=reads)

    def add(self, item: Any) -> UsualAdd | None:
        """Prepare an add; None if it is no common one."""
        encoded = _plain(item)
        part = None if encoded is None else self._operations.part_of(encoded)
        return None if encoded is None or part is None else self._shards[part].add_encoded(encoded)

    def contains(self, item: Any) -> UsualTest | None:
        """Prepare a test; None if it is no common one."""
        encoded = _plain(item)
        part = None if encoded is None else self._operations.part_of(encoded)
        return None if encoded is None or part is None else self._shards[part].test_encoded(encoded)

    def add_batch(self, items: Encoded, source: Sequence[Any]) -> None:
        """Prepare nothing: the items are in several shards."""

    def test_batch(self, items: Encoded) -> None:
        """Prepare nothing."""


def usual(operations: Any, *, reads: bool) -> Usual | UsualSharded | None:
    """Return the common calls of a filter; None if it has none.

    :param reads: several commands cost hardly more than one, so that some tests need no script.
    """
    options = operations.options
    if not options.retry_safe or options.wait is not None or not operations.codec.is_plain:
        return None
    if isinstance(operations, ShardedOperations):
        return UsualSharded(operations, reads=reads)
    if isinstance(operations, FilterOperations) and not operations.stored.only_read:
        return Usual(operations, reads=reads)
    return None
