"""The calls that add and test items: as data, and as bytes for the wire.

The calls about one handle differ only in the session, its call and the items.  All other parts are encoded
once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeGuard, TypeVar

from bloomredis.bits.batch import Encoded
from bloomredis.bits.blocked import Blocked
from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.protocol import clock
from bloomredis.protocol.calls import ScriptCall, Wait, as_sent, confirmed, framed, packed
from bloomredis.protocol.receipts import RECEIPT_SECONDS, Session
from bloomredis.protocol.replies import Flags, checked, is_answer
from bloomredis.protocol.scripts import Script
from bloomredis.protocol.steps import Call, Command, Part, Reply, Wire
from bloomredis.stored.header import IDENTITY_BYTES
from bloomredis.stored.state.handle import IN_BLOCKS, Handle

R = TypeVar("R")

_number: Final = int.from_bytes


class FilterCall(ScriptCall[R]):
    """A call of a script on the filter that a handle names.

    :param keys: the keys besides the filter's own.
    :param arguments: the arguments after the identity.
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
        call.server, call.stands_for = (server, *self.server), (self,)
        return call

    @property
    def tail(self) -> Command:  # type: ignore[override]
        """The keys and arguments."""
        return self.handle.tail(self.keys, self.arguments)

    @property
    def commands(self) -> list[Command]:  # type: ignore[override]
        """The commands, sent together."""
        return confirmed(("EVALSHA", self.script.sha, *self.tail), self.wait)

    def wire(self) -> Wire | None:
        """Return the encoded command in one piece and the number of replies."""
        if self.wait is not None:
            return None
        frame = self.handle.frame(self.script, len(self.keys), len(self.arguments))
        sized: list[int | bytes] = []
        for part in (*self.keys, *map(as_sent, self.arguments)):
            sized += len(part), part
        return [frame % tuple(sized)], 1


class ItemCall(ScriptCall[Reply]):
    """A call of a script about items of one filter; its commands are built on each access."""

    __slots__ = ("packed", "template")
    text, server = "", ()

    def __init__(self, template: Template, packed: bytes) -> None:
        self.template = template
        self.packed = packed

    @property
    def commands(self) -> list[Command]:  # type: ignore[override]  # built on each access
        """The commands, sent together."""
        return confirmed(("EVALSHA", self.script.sha, *self.tail), self.wait)


class Add(ItemCall):
    """A change of packed items, as the last call of a session if it has one.

    :ivar items: the encoded items.
    :ivar sent: the time of the first attempt.
    """

    __slots__ = ("items", "sent", "session")

    def __init__(
        self, template: Template, packed: bytes, session: Session | None, items: Encoded, sent: float
    ) -> None:
        self.template = template
        self.packed = packed
        self.session = session
        self.items = items
        self.sent = sent

    @property
    def again(self) -> bool:  # type: ignore[override]
        """True if the call may be retried after a lost reply."""
        return self.session is not None

    @property
    def is_single(self) -> bool:  # type: ignore[override]
        """True if the answer is one reply."""
        return self.wait is None

    @property
    def wait(self) -> Wait | None:  # type: ignore[override]
        """The replicas that must confirm the change."""
        return self.template.wait

    @property
    def script(self) -> Script[Reply]:  # type: ignore[override]
        """The script that changes items."""
        return self.template.change

    @property
    def tail(self) -> Command:  # type: ignore[override]
        """The keys and arguments."""
        session = self.session
        if session is None:
            return self.template.handle.tail((), (self.packed,))
        return self.template.handle.tail((session.key,), (self.packed, session.call))

    def wire(self) -> Wire | None:
        """Return the encoded command in one piece and the number of replies."""
        template, packed, session = self.template, self.packed, self.session
        if session is None or template.wait is not None:
            return None
        key, call = session.key, session.call
        return [template.add % (len(key), key, len(packed), packed, len(call), call.encode())], 1

    def is_plain(self, reply: object) -> TypeGuard[Flags]:
        """Return whether a reply answers all items and came before the receipt may have expired."""
        if isinstance(reply, int) and reply == 1 == len(self.items):  # "new" is certain however late it comes
            return True
        return is_answer(reply, *self._lengths) and clock.now() - self.sent <= RECEIPT_SECONDS

    def checked(self, reply: Reply) -> Flags:
        """Return a reply; `ConnectionFailedError` if it has another form or length."""
        return checked(reply, *self._lengths)

    @property
    def _lengths(self) -> tuple[int, int]:
        """The largest and smallest number of answers in a reply."""
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
        """The script's text if a replica may execute it, else ''."""
        return self.template.text

    def wire(self) -> Wire | None:
        """Return the encoded command in one piece and the number of replies."""
        packed = self.packed
        return [self.template.test % (len(packed), packed)], 1

    def answer_in(self, reply: Reply) -> bool | None:
        """Return the answer to one item in a reply; None if the reply needs to be checked."""
        return bool(reply) if reply in (0, 1) else None


class ContainsByReading(Call):
    """A test without a script: read the item's blocks, then the identity.

    One answer needs no script, since no bit of a filter is ever unset while the filter keeps its identity.
    If the identity is unchanged after the blocks were read, the blocks belong to this filter.  The answer was
    true when the first block without one of the item's bits was read, or else when the last block was read.
    (The test cannot detect a key that is moved away and back between two commands of one pipeline.)
    """

    __slots__ = ("masks", "template")
    is_single, again, text, server = False, True, "", ()

    def __init__(self, template: Template, masks: Sequence[tuple[int, int]]) -> None:
        self.template = template
        self.masks = masks

    @property
    def commands(self) -> list[Command]:  # type: ignore[override]
        """The commands, sent together."""
        key, size = self.template.handle.key, self.template.block_bytes
        firsts = [HEADER_BYTES + number * size for number, _ in self.masks]
        return [*(("GETRANGE", key, first, first + size - 1) for first in firsts), _read_identity(key)]

    def wire(self) -> Wire:
        """Return the encoded commands in one piece and the number of replies."""
        template = self.template
        wire, size = b"", template.block_bytes
        for number, _ in self.masks:
            first = HEADER_BYTES + number * size
            start, stop = b"%d" % first, b"%d" % (first + size - 1)
            wire += template.read_block % (len(start), start, len(stop), stop)
        return [wire + template.read_identity], len(self.masks) + 1

    def answer_in(self, reply: Sequence[Reply]) -> bool | None:
        """Return the answer in the replies; None without replies or if the filter is another or too short."""
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
    """The parts that all calls about one handle share, already encoded.

    :param change: the script of adds, or another script with the same keys and arguments.
    :param wait: replicas must confirm a change.
    :param by_replica: a replica may execute tests.
    :param ends_early: the reply to an add may end before the last item because the filter has to grow.
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
        self.add = handle.frame(change, 1, 2)  # the session; the items, and the call
        self.test = handle.frame(contains, 0, 1)
        self.pack = handle.layout.pack_one
        self.masks: Callable[[bytes], Sequence[tuple[int, int]]] | None = None  # None: tests need the script
        self.block_bytes = 0
        if isinstance(handle.layout, Blocked) and handle.script_variant == IN_BLOCKS:
            self.masks, self.block_bytes = handle.layout.masks, handle.layout.block_bytes
            self.read_block = framed(("GETRANGE", handle.key, 0, 0), (2, 3))
            self.read_identity = packed(_read_identity(handle.key))

    def test_of_one(self, item: bytes) -> Contains:
        """Return the call that tests an item."""
        return Contains(self, self.pack(item))

    def test_of(self, items: Encoded, packed: bytes) -> Contains:  # noqa: ARG002 - `ModuleTemplate` needs them
        """Return the call that tests packed items."""
        return Contains(self, packed)
