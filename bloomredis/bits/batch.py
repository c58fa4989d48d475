"""Which bits many items have: tested and set in a copy of a filter, told apart, and packed for the scripts.

A layout hashes a batch once, into one of these.  How the bits are kept is the layout's own affair; what is
asked of them is written here, for all layouts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

AT_ONCE: Final = 8192
"""Items worth hashing together: the temporaries stay in the processor's cache."""

_FEW: Final = 2048
"""Bits that are set faster by the slow but sure way of numpy."""

_ODD: Final = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: Knuth's multiplier


class BitAddresses(NamedTuple):
    """The byte that each bit lies in, and its mask: one row a probe, one column an item."""

    at: NDArray[np.intp]
    masks: Bytes

    def take(self, items: NDArray[np.intp]) -> BitAddresses:
        """Return those of some of the items, by their places in the batch."""
        return BitAddresses(self.at.take(items, axis=1), self.masks.take(items, axis=1))

    def missing(self, bitmap: Bytes) -> NDArray[np.intp]:
        """Return which of the items have a bit that is not set, in order."""
        missing: NDArray[np.intp] = (self._set_bits(bitmap).min(axis=0) == 0).nonzero()[0]
        return missing

    def set(self, bitmap: Bytes) -> None:
        """Set the bits of all items."""
        if self.at.size <= _FEW:
            np.bitwise_or.at(bitmap, self.at, self.masks)
            return
        for at, masks in zip(self.at, self.masks, strict=True):
            bitmap[at] |= masks  # of two items that share a byte here only one is written
        lost = self._set_bits(bitmap) == 0
        if lost.any():
            np.bitwise_or.at(bitmap, self.at[lost], self.masks[lost])

    def _set_bits(self, bitmap: Bytes) -> Bytes:
        return bitmap.take(self.at) & self.masks


class BatchBits(ABC):
    """The bits of a batch of items, in little memory."""

    @abstractmethod
    def take(self, items: NDArray[np.intp]) -> Self:
        """Return the bits of some of the items, by their places in the batch."""

    @abstractmethod
    def rows(self) -> Sequence[NDArray[Any]]:
        """Return all that is kept: arrays of whole numbers, an entry an item."""

    @abstractmethod
    def places(self) -> BitAddresses:
        """Return where the bits lie."""

    @abstractmethod
    def packed(self) -> bytes:
        """Return what the scripts are sent for the items."""

    def __len__(self) -> int:
        return len(self.rows()[0])

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the bits take."""
        return sum(row.nbytes for row in self.rows())

    def insert(self, bitmap: Bytes) -> Self:
        """Set the bits of all items; return the new ones: a bit was unset, and no equal item came before."""
        places = self.places()
        missing = places.missing(bitmap)
        places.set(bitmap)
        some = self if len(missing) == len(self) else self.take(missing)
        first_occurrences = some.first_occurrences()
        return some if len(first_occurrences) == len(some) else some.take(first_occurrences)

    def first_occurrences(self) -> NDArray[np.intp]:
        """Return which of the items have no equal before them, in order.

        Items are told apart by 64 bits that are computed from theirs.
        """
        keys = np.zeros(len(self), dtype=np.uint64)
        for row in self.rows():
            keys *= _ODD
            keys += row
        ordered = np.sort(keys)
        if not (ordered[1:] == ordered[:-1]).any():
            return np.arange(len(keys))
        return np.sort(np.unique(keys, return_index=True)[1])


@dataclass(frozen=True, slots=True)
class ScatteredBits(BatchBits):
    """Bits that lie anywhere: one row of offsets a probe."""

    offsets: NDArray[np.uint32]

    def take(self, items: NDArray[np.intp]) -> ScatteredBits:
        """Return the bits of some of the items, by their places in the batch."""
        return ScatteredBits(self.offsets.take(items, axis=1))

    def rows(self) -> Sequence[NDArray[np.uint32]]:
        """Return the offsets."""
        return list(self.offsets)

    def places(self) -> BitAddresses:
        """Return where the bits lie."""
        return BitAddresses(
            (self.offsets >> np.uint32(3)).astype(np.intp), byte_masks(self.offsets.astype(np.uint8))
        )

    def packed(self) -> bytes:
        """Return the offsets as little-endian u32, item after item."""
        return self.offsets.T.astype("<u4", copy=False).tobytes()


def byte_masks(bits: Bytes) -> Bytes:
    """Return the mask of each bit in its byte; only the last three bits of its number count."""
    masks: Bytes = np.right_shift(np.uint8(0x80), bits & np.uint8(7))
    return masks


class Hashing(Protocol):
    """What is needed of a layout here."""

    def hashed(self, items: Sequence[str | bytes]) -> BatchBits:
        """Return the bits of many, hashed at once."""


class HashedBatch(NamedTuple):
    """A batch of encoded items with the bits that one layout gives them, so that nothing is hashed twice."""

    layout: Hashing
    encoded: Sequence[str | bytes]
    probes: BatchBits
    places: BitAddresses

    def take(self, items: NDArray[np.intp]) -> HashedBatch:
        """Return some of the items, by their places in the batch."""
        encoded = list(map(self.encoded.__getitem__, items.tolist()))
        return HashedBatch(self.layout, encoded, self.probes.take(items), self.places.take(items))


def hashed(layout: Hashing, encoded: Sequence[str | bytes]) -> HashedBatch:
    """Return items with their bits in a layout."""
    probes = layout.hashed(encoded)
    return HashedBatch(layout, encoded, probes, probes.places())
