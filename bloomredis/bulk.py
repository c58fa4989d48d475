"""How many items at once become whole segments of bits, and which of them were new.

The bits of a batch are set in a bitmap of this process, and its segments are or-ed into the filter, which
costs the server a few memory copies where single probes cost it a command each.  Whether an item was new
follows from the bits that were there before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bloomredis.hashing import Encoder, Item
from bloomredis.layouts import Layout

SEGMENT_BYTES: Final = 128 << 10
"""What one script ors in: 0.2 to 0.6 ms of the server."""

DENSE: Final = 4096
"""Probes in a segment from which on it is cheaper as a whole (`python -m benchmarks.threshold`)."""

_WINDOW_BYTES: Final = 32 * SEGMENT_BYTES  # of the filter, worked on at a time: 32 MB here, a byte a bit
_MASKS: Final = np.array([0x80 >> bit for bit in range(8)], dtype=np.uint8)
_BLOCK: Final = 4096  # items hashed at a time: the temporaries stay in the processor's cache

Columns = NDArray[np.uint32]
"""Probes: one row a probe, one column an item."""


def is_dense(layout: Layout, items: int) -> bool:
    """Return whether a batch of so many items is better sent as segments than probe by probe."""
    segments = -(-layout.num_bits // (8 * SEGMENT_BYTES))
    return items * layout.num_hashes >= DENSE * segments


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch of items as they are sent: with their probes where it is dense enough to become segments."""

    items: Sequence[Item]
    encoded: Sequence[str | bytes]
    probes: Columns | None
    parts: Sequence[tuple[Any, Prepared]] = ()
    """Of a filter in several shards: where a part of the items lives, and how it is sent there."""


def prepare(layout: Layout | None, items: Sequence[Item], encoder: Encoder) -> Prepared:
    """Do what can be done without the server, which takes no lock of the interpreter most of the time.

    :param layout: None for a filter that has no segments, being in several bitmaps.
    """
    return prepared(layout, items, encoder.encode_all(items))


def prepared(layout: Layout | None, items: Sequence[Item], encoded: Sequence[str | bytes]) -> Prepared:
    """Do so with items that have been encoded."""
    if layout is None or not is_dense(layout, len(items)):
        return Prepared(items, encoded, None)
    return Prepared(items, encoded, columns(layout, encoded))


def columns(layout: Layout, encoded: Sequence[str | bytes]) -> Columns:
    """Return the probes of a batch."""
    probes = np.empty((layout.num_hashes, len(encoded)), dtype=np.uint32)
    for start in range(0, len(encoded), _BLOCK):
        probes[:, start : start + _BLOCK] = layout.probe_matrix(encoded[start : start + _BLOCK]).T
    return probes


@dataclass(slots=True)
class Segment:
    """A piece of the bitmap, and where it lies: its first byte."""

    first: int
    data: bytes


class Batch:
    """The bits of a batch of items, and what is known of those that were there before."""

    def __init__(self, layout: Layout, probes: Columns) -> None:
        self._probes = probes
        self._num_bytes = (layout.num_bits + 7) // 8
        self._was_there = np.ones(probes.shape[1], dtype=np.bool_)
        self._first = 0  # byte of the window that is being worked on
        self._before = np.zeros(0, dtype=np.uint8)

    def segments(self) -> Iterator[Segment]:
        """Yield the segments that have a bit set; `before` has to be called with each before the next."""
        for window in range(0, self._num_bytes, _WINDOW_BYTES):
            self._first = window
            size = min(_WINDOW_BYTES, self._num_bytes - self._first)
            flags = np.zeros(size * 8, dtype=np.bool_)
            for row in self._probes:
                flags[row if self._is_whole else row[self._in_window(row)] - self._first * 8] = True
            bitmap = np.packbits(flags)
            self._before = np.zeros(size, dtype=np.uint8)
            for first in range(0, size, SEGMENT_BYTES):
                piece = bitmap[first : first + SEGMENT_BYTES]
                if piece.any():
                    yield Segment(self._first + first, piece.tobytes())
            self._compare()

    def before(self, segment: Segment, found: bytes) -> None:
        """Take notice of what was in a segment's place before."""
        start = segment.first - self._first
        self._before[start : start + len(found)] = np.frombuffer(found, dtype=np.uint8)

    def new(self) -> NDArray[np.bool_]:
        """Return of each item whether it was new: not there before, and the first of its like here.

        Where an item's bits are all set only by other new items of the batch, it counts as new.
        """
        return _firsts(self._probes, np.flatnonzero(~self._was_there).astype(np.uint32))

    @property
    def _is_whole(self) -> bool:
        return self._num_bytes <= _WINDOW_BYTES

    def _in_window(self, row: Columns) -> NDArray[np.bool_]:
        place: NDArray[np.bool_] = row // np.uint32(_WINDOW_BYTES * 8) == self._first // _WINDOW_BYTES
        return place

    def _compare(self) -> None:
        """Find the items that had a bit in this window that was not set."""
        for row in self._probes:
            items = np.flatnonzero(self._was_there)
            if not self._is_whole:
                items = items[self._in_window(row[items])]
            offsets = row[items] - np.uint32(self._first * 8)
            unset = self._before[offsets >> 3] & _MASKS[offsets & 7] == 0
            self._was_there[items[unset]] = False


def _firsts(probes: Columns, pending: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return of each item whether it is one of `pending`, and the first of those with its probes.

    Items are thrown into slots by a hash of their probes.  The first one in a slot is a first; one with the
    same probes is not; the others are thrown again, by another hash.
    """
    first = np.zeros(probes.shape[1], dtype=np.bool_)
    slots = np.empty(1 << (4 * pending.size).bit_length(), dtype=np.uint32)
    shift = np.uint32(33 - slots.size.bit_length())
    dice = np.random.default_rng(0)
    rows = probes[:2]  # enough to tell most items apart
    while pending.size:
        slot = np.zeros(pending.size, dtype=np.uint32)
        for row in rows:
            slot += row[pending] * np.uint32(dice.integers(1 << 31) * 2 + 1)
        slot >>= shift
        slots[slot[::-1]] = pending[::-1]  # of several the last one written stays, which is the first
        holder = slots[slot]
        first[holder] = True
        others = np.flatnonzero(holder != pending)
        pending, holder = pending[others], holder[others]
        pending = pending[(probes[:, pending] != probes[:, holder]).any(axis=0)]
        rows = probes
    return first
