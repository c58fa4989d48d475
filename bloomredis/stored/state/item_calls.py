"""The calls that add and test items: as data, and as the bytes that are sent.

All but the lane, its call and the items is the same in the calls about one handle, so that is packed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeGuard, TypeVar

from bloomredis.bits.batch import Encoded
from bloomredis.bits.blocked import Blocked
from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.protocol import clock
from bloomredis.protocol.calls import ScriptCall, Wait, beginning, confirmed, parts
from bloomredis.protocol.receipts import RECEIPT_SECONDS, Lane
from bloomredis.protocol.replies import Flags, checked, is_answer
from bloomredis.protocol.scripts import Script
from bloomredis.protocol.steps import Call, Command, Part, Reply, Wire
from bloomredis.stored.header import IDENTITY_BYTES
from bloomredis.stored.state.handle import IN_BLOCKS, Handle

R = TypeVar("R")

_number: Final = int.from_bytes


class FilterCall(ScriptCall[R]):
    """A call of a script on the filter that a handle names.

    :param keys: those besides the filter's own.
    :param arguments: those behind the identity.
    """

    __slots__ = ("arguments", "handle", "keys")

    def __init__(
        self,
        script: Script[R],
        handle: Handle,
        keys: Sequence[bytes],
        arguments: Sequence[Part],
        wait: Wait | None = None,
        *,
        reads: bool = False,
        again: bool = True,
    ) -> None:
        self.script = script
        self.handle = handle
        self.keys = keys
        self.arguments = arguments
        self.wait = wait
        self.is_single = wait is None
        self.text = script.text if reads else ""
        self.again = again
        self.server = ()

    def to(self, server: int) -> Call:
        """Return the same call for one of several servers."""
        options = {"reads": bool(self.text), "again": self.again}
        call = type(self)(self.script, self.handle, self.keys, self.arguments, self.wait, **options)
        call.server = (server, *self.server)
        return call

    @property
    def tail(self) -> Command:  # type: ignore[override]
        """The keys and arguments."""
        return self.handle.tail(self.keys, self.arguments)

    @property
    def commands(self) -> list[Command]:  # type: ignore[override]
        """The commands, which are sent together."""
        return confirmed(("EVALSHA", self.script.sha, *self.tail), self.wait)

    def wire(self) -> Wire | None:
        """Return the command as it is sent, in one piece, and the number of replies."""
        if self.wait is not None:
            return None
        keys, arguments = self.keys, self.arguments
        return [self.handle.frame(self.script, len(keys), len(arguments)).wire(keys, arguments)], 1


class ItemCall(ScriptCall[Reply]):
    """A call of a script about items of one filter, whose commands are made where they are asked for."""

    __slots__ = ("packed", "template")
    text, server = "", ()

    def __init__(self, template: Template, packed: bytes) -> None:
        self.template = template
        self.packed = packed

    @property
    def commands(self) -> list[Command]:  # type: ignore[override]  # made where it is asked for
        """The commands, which are sent together."""
        return confirmed(("EVALSHA", self.script.sha, *self.tail), self.wait)


class Add(ItemCall):
    """A change of packed items; with a lane, by the last call of that.

    :ivar items: the items, encoded.
    :ivar sent: the time at which it is first sent.
    """

    __slots__ = ("items", "lane", "sent")

    def __init__(
        self, template: Template, packed: bytes, lane: Lane | None, items: Encoded, sent: float
    ) -> None:
        self.template = template
        self.packed = packed
        self.lane = lane
        self.items = items
        self.sent = sent

    @property
    def again(self) -> bool:  # type: ignore[override]
        """True if it may be sent again where it is not known whether it was executed."""
        return self.lane is not None

    @property
    def is_single(self) -> bool:  # type: ignore[override]
        """True if its answer is one reply."""
        return self.wait is None

    @property
    def wait(self) -> Wait | None:  # type: ignore[override]
        """The replicas that must confirm it."""
        return self.template.wait

    @property
    def script(self) -> Script[Reply]:  # type: ignore[override]
        """The script that changes items."""
        return self.template.change

    @property
    def tail(self) -> Command:  # type: ignore[override]
        """The keys and arguments."""
        lane = self.lane
        if lane is None:
            return self.template.handle.tail((), (self.packed,))
        return self.template.handle.tail((lane.key,), (self.packed, lane.call))

    def wire(self) -> Wire | None:
        """Return the command as it is sent, in one piece, and the number of replies."""
        template, packed, lane = self.template, self.packed, self.lane
        if lane is None or template.wait is not None:
            return None
        call = lane.call
        wire = b"%b%b%b$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
            *(template.before_lane, lane.wire, template.behind_lane),
            *(len(packed), packed, len(call), call.encode()),
        )
        return [wire], 1

    def is_plain(self, reply: object) -> TypeGuard[Flags]:
        """Return whether a reply needs no closer look: the answers of all items, in time."""
        return is_answer(reply, *self._lengths) and clock.now() - self.sent <= RECEIPT_SECONDS

    def checked(self, reply: Reply) -> Flags:
        """Return a reply; `ConnectionFailedError` for what is said in the place of answers."""
        return checked(reply, *self._lengths)

    @property
    def _lengths(self) -> tuple[int, int]:
        """The most and the fewest answers in a reply."""
        count = len(self.items)
        return count, 1 if self.template.ends_early else count


class Contains(ItemCall):
    """A test of packed items."""

    __slots__ = ()
    is_single, again, wait = True, True, None

    @property
    def script(self) -> Script[Reply]:  # type: ignore[override]
        """The script that tests items."""
        return self.template.contains

    @property
    def tail(self) -> Command:  # type: ignore[override]
        """The keys and arguments."""
        return self.template.handle.tail((), (self.packed,))

    @property
    def text(self) -> str:  # type: ignore[override]
        """The script, where a replica may execute it."""
        return self.template.text

    def wire(self) -> Wire | None:
        """Return the command as it is sent, in one piece, and the number of replies."""
        template, packed = self.template, self.packed
        return [b"%b$%d\r\n%b\r\n" % (template.before_items, len(packed), packed)], 1

    def found(self, reply: Reply) -> bool | None:
        """Return the answer to one item in a reply; None where that has to be looked at closely."""
        return bool(reply) if reply in (0, 1) else None


class ContainsByReading(Call):
    """A test without a script: the item's blocks are read, and then the identity.

    No script is needed for one answer: as long as a filter has its identity its bits are only ever set.  So
    blocks that were read before the identity was found unchanged are those of this filter, and what they say
    was true when the first block that lacks a bit was read, or the last.  (A key that was moved away and back
    between two commands of one sending would not be noticed.)
    """

    __slots__ = ("masks", "template")
    is_single, again, text, server = False, True, "", ()

    def __init__(self, template: Template, masks: Sequence[tuple[int, int]]) -> None:
        self.template = template
        self.masks = masks

    @property
    def commands(self) -> list[Command]:  # type: ignore[override]
        """The commands, which are sent together."""
        key, size = self.template.handle.key, self.template.block_bytes
        firsts = [HEADER_BYTES + number * size for number, _ in self.masks]
        return [*(("GETRANGE", key, first, first + size - 1) for first in firsts), _read_identity(key)]

    def wire(self) -> Wire:
        """Return the commands as they are sent, in one piece, and the number of replies."""
        template = self.template
        wire, size = b"", template.block_bytes
        for number, _ in self.masks:
            first = HEADER_BYTES + number * size
            start, stop = b"%d" % first, b"%d" % (first + size - 1)
            wire += b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n" % (template.bounds, len(start), start, len(stop), stop)
        return [wire + template.read_identity], len(self.masks) + 1

    def found(self, reply: Sequence[Reply]) -> bool | None:
        """Return the answer in the replies; None without any, or if the filter is another or too short."""
        template = self.template
        if not reply or reply[-1] != template.handle.identity:
            return None
        there, size = True, template.block_bytes
        for found, (_, mask) in zip(reply, self.masks):  # noqa: B905 - `strict` costs a tenth of this method
            if type(found) is not bytes or len(found) != size:
                return None
            there = there and _number(found) & mask == mask
        return there


def _read_identity(key: bytes) -> Command:
    return ("GETRANGE", key, 0, IDENTITY_BYTES - 1)


class Template:
    """The parts that all calls about one handle share, as they are sent.

    :param change: the script of adds, or another one that changes items as that does.
    :param wait: replicas must confirm a change.
    :param by_replica: a replica may execute the tests.
    :param ends_early: a reply to an add may end before the last item, where the filter has to grow.
    """

    def __init__(
        self,
        handle: Handle,
        change: Script[Reply],
        contains: Script[Reply],
        wait: Wait | None,
        *,
        by_replica: bool,
        ends_early: bool,
    ) -> None:
        self.ends_early = ends_early
        self.handle = handle
        self.change = change
        self.contains = contains
        self.wait = wait
        self.text = contains.text if by_replica else ""
        add = ("EVALSHA", change.sha, *handle.tail((b"",), (b"", "")))
        test = ("EVALSHA", contains.sha, *handle.tail((), (b"",)))
        self.before_lane = beginning(add[:4], more=len(add) - 4)
        self.behind_lane = parts(add[5:-2])  # up to the items
        self.before_items = beginning(test[:-1], more=1)
        self.pack = handle.layout.pack_one
        self.masks: Callable[[bytes], Sequence[tuple[int, int]]] | None = None  # if blocks may be read
        self.block_bytes = 0
        if isinstance(handle.layout, Blocked) and handle.version == IN_BLOCKS:
            self.masks, self.block_bytes = handle.layout.masks, handle.layout.block_bytes
            self.bounds = beginning(("GETRANGE", handle.key), more=2)
            self.read_identity = beginning(_read_identity(handle.key), more=0)

    def test_of_one(self, item: bytes) -> Contains:
        """Return the call that tests an item."""
        return Contains(self, self.pack(item))

    def test_of(self, items: Encoded, packed: bytes) -> Contains:  # noqa: ARG002 - as the module's
        """Return the call that tests packed items."""
        return Contains(self, packed)
