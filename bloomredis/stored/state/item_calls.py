"""The calls of scripts about one filter: as data, and as bytes for the wire.

The calls about one handle differ only in some keys and arguments.  All other parts are encoded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, TypeGuard, TypeVar

from bloomredis.bits.batch import Encoded
from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.protocol import clock
from bloomredis.protocol.calls import ScriptCall, Wait, as_sent, framed, packed
from bloomredis.protocol.receipts import RECEIPT_SECONDS, Session
from bloomredis.protocol.replies import Flags, checked, is_answer
from bloomredis.protocol.scripts import Script
from bloomredis.protocol.steps import Call, Command, Part, Reply, Wire
from bloomredis.stored.header import IDENTITY_BYTES
from bloomredis.stored.state.handle import Handle

R = TypeVar("R")

_number: Final = int.from_bytes


class FilterCall(ScriptCall[R]):
    """A call of a script on the filter that a handle names.

    :param script: in the variant of the handle.
    :param keys: the keys besides the filter's own.
    :param arguments: the arguments after the identity.
    :param reads: the script is read-only, and a replica may execute it.
    """

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
        self.script = script  # all here, since every call makes one
        self.handle = handle
        self.keys = keys
        self.arguments = arguments
        self.wait = wait
        self.is_single = wait is None
        self.again = again
        if reads:
            self.text = script.text

    @property
    def about(self) -> str:
        """The filter's name."""
        return self.handle.name

    @property
    def tail(self) -> Command:
        """The parts of the command that follow the script's name."""
        return self.handle.tail(self.keys, self.arguments)

    def wire(self) -> Wire | None:
        """Return the encoded command in one piece and the number of replies; None if the call has a WAIT."""
        if self.wait is not None:
            return None
        script, handle, keys, arguments = self.script, self.handle, self.keys, self.arguments
        shape = script.sha, len(keys), len(arguments)
        frame = handle.frames.get(shape) or handle.make_frame(script, len(keys), len(arguments))
        sized: list[int | bytes] = []
        for part in (*keys, *arguments):
            if type(part) is bytes:
                sized += len(part), part
            else:
                sent = as_sent(part)
                sized += len(sent), sent
        return [frame % (*sized,)], 1


AddKind = tuple[Handle, Script[Reply], bytes, bool]
"""What the changes of one handle share: its script, the format string of the command, and `ends_early`."""


class Add(FilterCall[Reply]):
    """A change of packed items, as the last call of a session if it has one.

    :ivar items: the encoded items.
    :ivar sent: the time of the first attempt.
    :ivar ends_early: a reply may end before the last item, because the filter is full or must grow.
    :ivar is_settled: its answers, or its lack of them, have reached the caller or the pending calls.
    """

    is_settled = False

    def __init__(
        self, kind: AddKind, session: Session | None, items: Encoded, packed: bytes, sent: float
    ) -> None:
        self.handle, self.script, self._frame, self.ends_early = kind
        self.session = session
        self.packed = packed
        self.items = items
        self.sent = sent
        if session is None:
            self.again = False

    @property
    def tail(self) -> Command:
        """The parts of the command that follow the script's name."""
        session = self.session
        if session is None:
            return self.handle.tail((), (self.packed,))
        return self.handle.tail((session.key,), (self.packed, session.call))

    def wire(self) -> Wire | None:
        """Return the same as the base, in half the time."""
        packed, session = self.packed, self.session
        if self.wait is not None:
            return None
        if session is None:
            return [self._frame % (len(packed), packed)], 1
        key, call = session.key, session.call.encode()
        return [self._frame % (len(key), key, len(packed), packed, len(call), call)], 1

    def is_plain(self, reply: object) -> TypeGuard[Flags]:
        """Return whether a reply answers all items, and came before the call's receipt may have expired."""
        if self.session is None:
            return False
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
        return count, 1 if self.ends_early else count


class Contains(FilterCall[Reply]):
    """A test of packed items."""

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

    is_single = False

    def __init__(self, handle: Handle, item: bytes) -> None:
        layout: Any = handle.layout  # a `Blocked` one
        self.handle = handle
        self.block_bytes = layout.block_bytes
        self.masks = layout.masks(item)

    @property
    def commands(self) -> list[Command]:
        """The commands, sent together."""
        key, size = self.handle.key, self.block_bytes
        firsts = [HEADER_BYTES + number * size for number, _ in self.masks]
        return [*(("GETRANGE", key, first, first + size - 1) for first in firsts), _read_identity(key)]

    def wire(self) -> Wire:
        """Return the encoded commands in one piece and the number of replies."""
        wire, size = b"", self.block_bytes
        read_block, read_identity = _frames(self.handle.key)
        for number, _ in self.masks:
            first = HEADER_BYTES + number * size
            start, stop = b"%d" % first, b"%d" % (first + size - 1)
            wire += read_block % (len(start), start, len(stop), stop)
        return [wire + read_identity], len(self.masks) + 1

    def answer_in(self, reply: Sequence[Reply]) -> bool | None:
        """Return the answer in the replies; None without replies or if the filter is another or too short."""
        if not reply or reply[-1] != self.handle.identity:
            return None
        there, size = True, self.block_bytes
        for found, (_, mask) in zip(reply, self.masks):  # noqa: B905 - `strict` costs a tenth of this method
            if type(found) is not bytes or len(found) != size:
                return None
            there = there and _number(found) & mask == mask
        return there


def _read_identity(key: bytes) -> Command:
    return ("GETRANGE", key, 0, IDENTITY_BYTES - 1)


@lru_cache(1024)
def _frames(key: bytes) -> tuple[bytes, bytes]:
    """Return the format string of the command that reads a block, and the command that reads the identity."""
    return framed(("GETRANGE", key, 0, 0), (2, 3)), packed(_read_identity(key))
