"""The calls that add and test items: as data, and as the bytes that are sent.

All but the lane, its call and the items is the same in the calls about one handle, so that is packed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from bloomredis.bits.blocked import Blocked
from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.protocol.calls import beginning, parts
from bloomredis.protocol.receipts import Lane
from bloomredis.protocol.scripts import Script
from bloomredis.protocol.steps import Call, Command
from bloomredis.stored.header import IDENTITY_BYTES
from bloomredis.stored.state.handle import IN_BLOCKS, Handle

_number: Final = int.from_bytes


class ItemCall(Call):
    """A call about items of one filter, which may be sent again."""

    __slots__ = ("packed", "template")
    is_single, again, server, text = True, True, (), ""

    def __init__(self, template: Template, packed: Any) -> None:
        self.template = template
        self.packed = packed

    def wire(self) -> tuple[list[bytes], int]:
        """Return the commands as they are sent, in one piece, and the number of replies."""
        raise NotImplementedError

    def found(self, reply: Any) -> bool | None:
        """Return the answer to one item in the reply; None where that has to be looked at closely."""
        raise NotImplementedError


class Add(ItemCall):
    """A change of packed items, by the last call of a lane."""

    __slots__ = ("lane",)

    def __init__(self, template: Template, packed: bytes, lane: Lane) -> None:
        self.template = template
        self.packed = packed
        self.lane = lane

    @property
    def commands(self) -> list[Command]:  # type: ignore[override]  # made where it is asked for
        """The command."""
        return [self.template.command_of_add(self.lane.key, self.packed, self.lane.call)]

    def wire(self) -> tuple[list[bytes], int]:
        """Return the command as it is sent, in one piece, and the number of replies."""
        template, packed, lane = self.template, self.packed, self.lane
        call = lane.call
        wire = b"%b%b%b$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
            *(template.add, lane.wire, template.behind_lane),
            *(len(packed), packed, len(call), call.encode()),
        )
        return [wire], 1


class Contains(ItemCall):
    """A test of packed items by a script."""

    __slots__ = ()

    @property
    def commands(self) -> list[Command]:  # type: ignore[override]
        """The command."""
        return [self.template.command_of_test(self.packed)]

    @property
    def text(self) -> str:  # type: ignore[override]
        """The script, where a replica may execute it."""
        return self.template.text

    def wire(self) -> tuple[list[bytes], int]:
        """Return the command as it is sent, in one piece, and the number of replies."""
        template, packed = self.template, self.packed
        return [b"%b$%d\r\n%b\r\n%b" % (template.test, len(packed), packed, template.behind_item)], 1

    def found(self, reply: Any) -> bool | None:
        """Return the answer to one item in a reply; None if it says something else."""
        return bool(reply) if reply in (0, 1) else None


class ContainsByReading(ItemCall):
    """A test without a script: the item's blocks are read, and then the identity.

    No script is needed for one answer: as long as a filter has its identity its bits are only ever set.  So
    blocks that were read before the identity was found unchanged are those of this filter, and what they say
    was true when the first block that lacks a bit was read, or the last.  (A key that was moved away and back
    between two commands of one sending would not be noticed.)
    """

    __slots__ = ()
    is_single = False

    @property
    def commands(self) -> list[Command]:  # type: ignore[override]
        """The commands, which are sent together."""
        key, size = self.template.handle.key, self.template.block_bytes
        firsts = [HEADER_BYTES + number * size for number, _ in self.packed]
        return [*(("GETRANGE", key, first, first + size - 1) for first in firsts), _read_identity(key)]

    def wire(self) -> tuple[list[bytes], int]:
        """Return the commands as they are sent, in one piece, and the number of replies."""
        template = self.template
        wire, size = b"", template.block_bytes
        for number, _ in self.packed:
            first = HEADER_BYTES + number * size
            start, stop = b"%d" % first, b"%d" % (first + size - 1)
            wire += b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n" % (template.bounds, len(start), start, len(stop), stop)
        return [wire + template.read_identity], len(self.packed) + 1

    def found(self, reply: Any) -> bool | None:
        """Return the answer in the replies; None without any, or if the filter is another or too short."""
        template = self.template
        if not reply or reply[-1] != template.handle.identity:
            return None
        there, size = True, template.block_bytes
        for found, (_, mask) in zip(reply, self.packed):  # noqa: B905 - `strict` costs a tenth of this method
            if type(found) is not bytes or len(found) != size:
                return None
            there = there and _number(found) & mask == mask
        return there


def _read_identity(key: bytes) -> Command:
    return ("GETRANGE", key, 0, IDENTITY_BYTES - 1)


class Template:
    """All that the calls about one handle have in common, as it is sent.

    :param change: the script of adds, or another one that changes items as that does.
    :param by_replica: a replica may execute the tests.
    """

    kind: ClassVar[type[Contains]] = Contains
    test_item: ClassVar[int] = -1
    """Where the items are in the command of a test."""

    def __init__(self, handle: Handle, change: Script, contains: Script, *, by_replica: bool) -> None:
        self.handle = handle
        self._change = change.sha
        self._contains = contains.sha
        self.text = contains.text if by_replica else ""
        add, test = self.command_of_add(b"", b"", ""), self.command_of_test(b"")
        at = self.test_item % len(test)
        self.add = beginning(add[:4], more=len(add) - 4)  # up to the lane's key
        self.behind_lane = parts(add[5:-2])  # up to the items
        self.test = beginning(test[:at], more=len(test) - at)  # up to the items
        self.behind_item = parts(test[at + 1 :])
        self.pack: Callable[[bytes], bytes] = handle.layout.pack_one
        self.masks: Callable[[bytes], Sequence[tuple[int, int]]] | None = None  # if blocks may be read
        self.block_bytes = 0
        if isinstance(handle.layout, Blocked) and handle.version == IN_BLOCKS:
            self.masks, self.block_bytes = handle.layout.masks, handle.layout.block_bytes
            self.bounds = beginning(("GETRANGE", handle.key), more=2)
            self.read_identity = beginning(_read_identity(handle.key), more=0)

    def command_of_add(self, lane: bytes, packed: bytes, call: str) -> Command:
        """Return the command that adds packed items by a call of a lane."""
        return ("EVALSHA", self._change, *self.handle.tail((lane,), (packed, call)))

    def command_of_test(self, packed: bytes) -> Command:
        """Return the command that tests packed items."""
        return ("EVALSHA", self._contains, *self.handle.tail((), (packed,)))

    def test_of(self, item: bytes, *, reads: bool) -> Contains | ContainsByReading:
        """Return the call that tests an item; `reads` lets it read the blocks."""
        if reads and self.masks is not None:
            return ContainsByReading(self, self.masks(item))
        return self.kind(self, self.pack(item))
