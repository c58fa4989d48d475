"""Strings of any length written under their keys in one step, without overwriting anything."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from bloomredis.errors import FilterLostError
from bloomredis.protocol import clock, forms, replies, scripts
from bloomredis.protocol.calls import call, send, send_all
from bloomredis.protocol.gather import gather, unless_failed
from bloomredis.protocol.keys import auxiliary_prefix
from bloomredis.protocol.pieces import AT_ONCE, PIECE_BYTES
from bloomredis.protocol.receipts import Lane, Lanes, in_a_lane
from bloomredis.protocol.replies import OutcomeMatters, Refusal
from bloomredis.protocol.steps import Command, Op
from bloomredis.stored.state.base import taken

_ALLOCATE, _WRITE, _RENAME_NEW = (
    scripts.load(verb, forms.integer) for verb in ("allocate", "write", "rename_new")
)

WRITING_MS: Final = 600_000
"""A string lives no longer without a piece or a renewal, unless it has its final key."""
_RENEWAL_SECONDS: Final = 60.0


class Writing:
    """Strings in one hash slot that are written under temporary names, and get their keys all at once.

    What is never renamed goes by itself, ten minutes after it was last written or renewed.
    """

    def __init__(self, name: str, key: bytes) -> None:
        """Begin with no string.

        :param key: any key in the slot.
        """
        self._name = name
        self._lanes = Lanes(key)
        self._prefix = auxiliary_prefix(key) + b"written:" + os.urandom(8).hex().encode()
        self._temporary: dict[bytes, bytes] = {}  # by the final key
        self._renewed = clock.now()

    def allocate(self, final: bytes, length: int) -> Op[None]:
        """Make room for the string of a key: zeros."""
        temporary = self._temporary[final] = b"%s/%d" % (self._prefix, len(self._temporary))
        yield from call(_ALLOCATE, [temporary], [length, WRITING_MS])

    def write(self, final: bytes, length: int, pieces: Sequence[tuple[int, bytes]]) -> Op[None]:
        """Write pieces of a string, each at its first byte; those of zeros are there already."""
        calls = (
            call(_WRITE, [self._temporary[final]], [length, WRITING_MS, first, piece])
            for first, piece in pieces
            if piece.strip(b"\0")
        )
        if not all(unless_failed((yield from gather(calls)))):
            raise self._vanished()

    def is_renewal_due(self) -> bool:
        """True if the strings that are not being written have to be renewed."""
        return not 0 <= clock.now() - self._renewed < _RENEWAL_SECONDS

    def renew(self) -> Op[None]:
        """Let all strings live on."""
        self._renewed = clock.now()
        renewals: list[Command] = [("PEXPIRE", key, WRITING_MS) for key in self._temporary.values()]
        if not all((yield from send_all(renewals, forms.integer))):
            raise self._vanished()

    def publish(self, ttls: Mapping[bytes, int]) -> Op[None]:
        """Give strings their keys, each with its time to live in ms, 0 for none; the other strings go.

        :raises FilterMismatchError: a key is taken; all are left untouched.
        """
        strings = [each for final in ttls for each in (final, self._temporary[final])]

        def rename(lane: Lane) -> Op[int]:
            return call(_RENAME_NEW, [lane.key, *strings], [lane.next_call(0), *ttls.values()])

        try:
            with OutcomeMatters(self._name, "look whether the key is there now"):
                placed = yield from in_a_lane(self._lanes, rename)
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
        """Delete what has not got its key."""
        doomed, self._temporary = self._temporary, {}
        if doomed:
            yield from send(("UNLINK", *doomed.values()), forms.integer)

    def _vanished(self) -> FilterLostError:
        return FilterLostError(
            f"what was being written for {self._name!r} has vanished (evicted, flushed, or this process was "
            "held for ten minutes); nothing was put under that name: begin again"
        )


def place(name: str, strings: Mapping[bytes, bytes]) -> Op[None]:
    """Write each key's string under a temporary name, piece by piece, and then rename all at once.

    The keys lie in the slot of the first.

    :raises FilterMismatchError: a key is taken; all are left untouched.
    """
    writing = Writing(name, next(iter(strings)))
    for final, data in strings.items():
        yield from writing.allocate(final, len(data))
        for start in range(0, len(data), PIECE_BYTES * AT_ONCE):
            part = range(start, min(start + PIECE_BYTES * AT_ONCE, len(data)), PIECE_BYTES)
            yield from writing.write(final, len(data), [(at, data[at : at + PIECE_BYTES]) for at in part])
            if writing.is_renewal_due():
                yield from writing.renew()
    yield from writing.publish(dict.fromkeys(strings, 0))
