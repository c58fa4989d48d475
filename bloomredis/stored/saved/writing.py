"""Strings of any length, written under temporary keys and renamed in one step, overwriting nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from bloomredis.errors import FilterLostError
from bloomredis.protocol import clock, forms, replies, scripts
from bloomredis.protocol.calls import call, send_all, send_command
from bloomredis.protocol.gather import gather, unless_failed
from bloomredis.protocol.keys import auxiliary_prefix
from bloomredis.protocol.pieces import PIECE_BYTES, PIECES_AT_ONCE
from bloomredis.protocol.receipts import Session, Sessions, in_session
from bloomredis.protocol.replies import OutcomeMatters, Refusal
from bloomredis.protocol.steps import Command, Op
from bloomredis.stored.state.base import taken

_ALLOCATE, _WRITE, _RENAME_NEW = (
    scripts.load_script(verb, forms.integer) for verb in ("allocate", "write", "rename_new")
)

WRITING_MS: Final = 600_000
"""The time to live of a string under its temporary key, since the last written piece or renewal."""
_RENEWAL_SECONDS: Final = 60.0


class Writing:
    """Strings in one hash slot, written under temporary keys and renamed to their final keys all at once.

    A string that is not renamed expires ten minutes after it was last written or renewed.
    """

    def __init__(self, name: str, key: bytes) -> None:
        """Begin without strings.

        :param key: any key in the slot.
        """
        self._name = name
        prefix = auxiliary_prefix(key)
        self._sessions = Sessions(prefix)
        self._prefix = prefix + b"written:" + os.urandom(8).hex().encode()
        self._temporary: dict[bytes, bytes] = {}  # by the final key
        self._renewed = clock.now()

    def allocate(self, final: bytes, length: int) -> Op[None]:
        """Create the temporary string for a final key: `length` zeros."""
        temporary = self._temporary[final] = b"%s/%d" % (self._prefix, len(self._temporary))
        yield from call(_ALLOCATE, [temporary], [length, WRITING_MS])

    def write(self, final: bytes, length: int, pieces: Sequence[tuple[int, bytes]]) -> Op[None]:
        """Write pieces of a string, each at its index; skip zeros, which the string already has."""
        calls = (
            call(_WRITE, [self._temporary[final]], [length, WRITING_MS, first, piece])
            for first, piece in pieces
            if piece.strip(b"\0")
        )
        if not all(unless_failed((yield from gather(calls)))):
            raise self._vanished()

    def is_renewal_due(self) -> bool:
        """Return True if `touch` is due, so that strings which are not being written do not expire."""
        return not 0 <= clock.now() - self._renewed < _RENEWAL_SECONDS

    def touch(self) -> Op[None]:
        """Renew the time to live of all strings."""
        self._renewed = clock.now()
        renewals: list[Command] = [("PEXPIRE", key, WRITING_MS) for key in self._temporary.values()]
        if not all((yield from send_all(renewals, forms.integer))):
            raise self._vanished()

    def publish(self, ttls: Mapping[bytes, int]) -> Op[None]:
        """Rename strings to these final keys, each with a time to live in ms, 0 for none; delete the rest.

        :raises FilterMismatchError: a key exists; no key was changed.
        """
        strings = [each for final in ttls for each in (final, self._temporary[final])]

        def rename(session: Session) -> Op[int]:
            return call(_RENAME_NEW, [session.key, *strings], [session.next_call(0), *ttls.values()])

        try:
            with OutcomeMatters(self._name, "check whether the key exists now"):
                placed = yield from in_session(self._sessions, rename)
        except Refusal as refusal:
            if refusal.word != replies.MISSING:
                raise
            raise self._vanished() from None
        if placed != 1:
            yield from self.discard()
            raise taken(self._name)
        for final in ttls:
            del self._temporary[final]
        yield from self.discard()

    def discard(self) -> Op[None]:
        """Delete the strings that have not been renamed."""
        doomed, self._temporary = self._temporary, {}
        if doomed:
            yield from send_command(("UNLINK", *doomed.values()), forms.integer)

    def _vanished(self) -> FilterLostError:
        return FilterLostError(
            f"a temporary key of {self._name!r} has vanished (evicted, flushed, or this process was "
            "stopped for ten minutes), and nothing was stored under that name",
            advice="begin again",
        )


def put_strings(name: str, strings: Mapping[bytes, bytes]) -> Op[None]:
    """Write each key's string under a temporary key, piece by piece, then rename all at once.

    All keys must lie in one slot.

    :raises FilterMismatchError: a key exists; no key was changed.
    """
    writing = Writing(name, next(iter(strings)))
    for final, data in strings.items():
        yield from writing.allocate(final, len(data))
        for start in range(0, len(data), PIECE_BYTES * PIECES_AT_ONCE):
            part = range(start, min(start + PIECE_BYTES * PIECES_AT_ONCE, len(data)), PIECE_BYTES)
            yield from writing.write(final, len(data), [(at, data[at : at + PIECE_BYTES]) for at in part])
            if writing.is_renewal_due():
                yield from writing.touch()
    yield from writing.publish(dict.fromkeys(strings, 0))
