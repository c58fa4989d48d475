"""Prepared calls with one item: what each sends, and the operation that may have to take over (`usual`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.protocol.receipts import Lane
from bloomredis.protocol.replies import raise_explained
from bloomredis.protocol.steps import Command, Op
from bloomredis.stored.handle import Handle
from bloomredis.stored.header import IDENTITY_BYTES

if TYPE_CHECKING:
    from bloomredis.operations.usual import Usual


_number: Final = int.from_bytes


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
    def replies(self) -> int:
        """The number of replies."""
        return 1

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
    packed: Any  # the item for the command
    encoded: bytes

    @property
    def command(self) -> Command | list[Command]:
        """The command, or the commands that are sent together."""
        return self.usual.command_of_test(self.known.handle, self.packed)

    @property
    def replies(self) -> int:
        """The number of replies."""
        return 1

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


class UsualReading(UsualTest):
    """A prepared test without a script: the item's blocks are read, and then the identity.

    No script is needed for one answer: within a generation bits are only ever set, so blocks that were read
    before the identity was found unchanged are those of this filter, and what they say was true when the
    first block that lacks a bit was read, or the last.
    """

    @property
    def command(self) -> list[Command]:
        """The commands, which are sent together."""
        key, size = self.known.handle.key, self.known.block_bytes
        firsts = [HEADER_BYTES + number * size for number, _ in self.packed]
        return [*(("GETRANGE", key, first, first + size - 1) for first in firsts), read_identity(key)]

    @property
    def replies(self) -> int:
        """The number of replies."""
        return len(self.packed) + 1

    def wire(self) -> list[bytes]:
        """Return the commands as they are sent, in one piece."""
        _, known, packed, _ = self
        wire, size = b"", known.block_bytes
        for number, _ in packed:
            first = HEADER_BYTES + number * size
            start, stop = b"%d" % first, b"%d" % (first + size - 1)
            wire += b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n" % (known.test, len(start), start, len(stop), stop)
        return [wire + known.behind_item]

    def operation(self) -> Op[bool]:
        """Return the operation whose first step is the commands; after them it calls the script."""
        try:
            replies = yield self.command
        except Exception as error:
            raise_explained(error)
        found = self.answer(replies)
        return (yield from super().operation()) if found is None else found

    def answer(self, reply: Any) -> bool | None:
        """Return the answer in the replies; None if it is another filter, or ends before the block does."""
        _, known, packed, _ = self
        if reply[-1] != known.handle.identity:
            return None
        there, size = True, known.block_bytes
        for found, (_, mask) in zip(reply, packed):  # noqa: B905 - `strict` costs a tenth of this method
            if type(found) is not bytes or len(found) != size:
                return None
            there = there and _number(found) & mask == mask
        return there


def read_identity(key: bytes) -> Command:
    """Return the command that reads the identity of the filter under a key."""
    return ("GETRANGE", key, 0, IDENTITY_BYTES - 1)
