"""When a copy in this process may answer for the server.

An item whose bits are all set in the copy is in the filter, as long as the filter's generation stands.
Every script call proves that, since it compares the generation; so the copy answers for so many seconds
after the last call was sent, and then the next call goes to the server again.  What the server says is
learnt.  What others add is read from it piece by piece, beside the calls that go there anyway, and only
while there is something to be gained from it.
"""

from __future__ import annotations

import time
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bloomredis.bits.batch import HashedBatch
from bloomredis.bits.bitmap import Bits
from bloomredis.operations.snapshot import PIECE_BYTES
from bloomredis.stored.base import Handle

_SHARE: Final = 20
"""A piece is read when so many times the time has passed that the last one took."""

_MISSES: Final = 100
"""Items that the server knew and the copy did not, after which the filter is read once more."""


class LocalCache:
    """The copy of one filter object, and how long it can be relied on."""

    def __init__(self, check: float) -> None:
        self._check = check
        self._drop(None)

    def __getstate__(self) -> dict[str, Any]:
        return {"_check": self._check}  # another process reads a copy of its own

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._check = state["_check"]
        self._drop(None)

    def _drop(self, handle: Handle | None) -> None:
        self._opened = handle
        self._bits = None if handle is None else Bits(handle.bitmap)
        self._until = self._not_before = 0.0
        self._next: int | None = 0  # the first byte of the piece to read next, None if all were read
        self._misses = 0

    def has(self, handle: Handle | None, encoded: bytes) -> bool:
        """Return whether an item is known to be in the filter."""
        bits = self._bits
        if bits is None or handle is not self._opened or time.monotonic() >= self._until:
            return False
        return bits.has(encoded)

    def unknown(self, handle: Handle | None, encoded: HashedBatch) -> NDArray[np.intp] | None:
        """Return the places of the items that are not known to be in the filter; None if none is known."""
        bits = self._bits
        if bits is None or handle is not self._opened or time.monotonic() >= self._until:
            return None
        return encoded.places.missing(bits.array)

    def learn(
        self, handle: Handle, sent: float, there: bytes | HashedBatch | None, misses: int
    ) -> tuple[int, int] | None:
        """Take notice of a call that was sent then, which found this generation, and of items in the filter.

        :param there: one encoded item, or a batch.
        :param misses: how many of them others had added.
        :returns: the piece of the filter to read now (its first byte, its length), if any.
        """
        if handle is not self._opened:
            self._drop(handle)
        assert self._bits is not None  # noqa: S101 - there is one for what is opened
        self._until = sent + self._check
        if isinstance(there, bytes):
            self._bits.add(there)
        elif there is not None and there.layout == handle.bitmap:
            there.places.set(self._bits.array)
        self._misses += misses
        if self._next is None and self._misses >= _MISSES:
            self._next, self._misses = 0, 0
        if self._next is None or time.monotonic() < self._not_before:
            return None
        return self._next, PIECE_BYTES

    def unite(self, handle: Handle, first: int, piece: bytes, asked: float) -> None:
        """Take a piece that was read; `asked` says when it was asked for."""
        if handle is not self._opened or self._bits is None:
            return
        self._bits.unite(first, piece)
        now = time.monotonic()
        self._not_before = now + _SHARE * (now - asked)
        following = first + PIECE_BYTES
        self._next = following if following < len(self._bits.bytes) else None
