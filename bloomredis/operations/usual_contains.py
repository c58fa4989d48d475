"""Prepared tests of one item: what each sends, and the operation that may have to take over (`usual`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.protocol.replies import raise_explained
from bloomredis.protocol.steps import Call, Command, Op
from bloomredis.stored.header import IDENTITY_BYTES

if TYPE_CHECKING:
    from bloomredis.operations.usual import Known, Usual


_number: Final = int.from_bytes


class UsualTest(NamedTuple):
    """A prepared test, and what the operation that may have to take over needs."""

    usual: Usual
    known: Known
    packed: Any  # the item for the command
    encoded: bytes
    sent: float

    @property
    def command(self) -> Command | list[Command]:
        """The command, or the commands that are sent together."""
        return self.usual.command_of_test(self.known.handle, self.packed)

    def wire(self) -> tuple[list[bytes], int]:
        """Return the command as it is sent, in one piece, and the number of replies."""
        _, known, packed, _, _ = self
        return [b"%b$%d\r\n%b\r\n%b" % (known.test, len(packed), packed, known.behind_item)], 1

    def operation(self) -> Op[bool]:
        """Return the operation whose first step is the command."""
        return self.usual.filter.membership.test_sent(self.known.handle, self.encoded)

    def answer(self, reply: Any) -> bool | None:
        """Return the answer in a reply; None if the operation has to find it."""
        there = self._found(reply)
        if there is not None and (cache := self.usual.cache) is not None:
            cache.learn(self.known.handle, self.encoded, self.sent, there=there)
        return there

    def _found(self, reply: Any) -> bool | None:
        return bool(reply) if reply in (0, 1) else None


class UsualModuleTest(UsualTest):
    """A prepared test of an item and of the markers of a filter of the server's module."""

    def _found(self, reply: Any) -> bool | None:
        """Return the answer in a reply; None where a marker is missing."""
        there = reply[0] == 1
        return there if reply.count(True) == len(reply) - (not there) else None


class UsualReading(UsualTest):
    """A prepared test without a script: the item's blocks are read, and then the identity.

    No script is needed for one answer: as long as a filter has its identity its bits are only ever set.  So
    blocks that were read before the identity was found unchanged are those of this filter, and what they say
    was true when the first block that lacks a bit was read, or the last.  (A key that was moved away and back
    between two commands of one sending would not be noticed.)
    """

    @property
    def command(self) -> list[Command]:
        """The commands, which are sent together."""
        key, size = self.known.handle.key, self.known.block_bytes
        firsts = [HEADER_BYTES + number * size for number, _ in self.packed]
        return [*(("GETRANGE", key, first, first + size - 1) for first in firsts), read_identity(key)]

    def wire(self) -> tuple[list[bytes], int]:
        """Return the commands as they are sent, in one piece, and the number of replies."""
        _, known, packed, _, _ = self
        wire, size = b"", known.block_bytes
        for number, _ in packed:
            first = HEADER_BYTES + number * size
            start, stop = b"%d" % first, b"%d" % (first + size - 1)
            wire += b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n" % (known.test, len(start), start, len(stop), stop)
        return [wire + known.behind_item], len(packed) + 1

    def operation(self) -> Op[bool]:
        """Return the operation whose first step is the commands; after them it calls the script."""
        try:
            replies = yield Call(self.command, is_single=False)
        except Exception as error:
            raise_explained(error)
        found = self.answer(replies)
        return (yield from super().operation()) if found is None else found

    def _found(self, reply: Any) -> bool | None:
        """Return the answer in the replies; None without any, or if the filter is another or too short."""
        _, known, packed, _, _ = self
        if not reply or reply[-1] != known.handle.identity:
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
