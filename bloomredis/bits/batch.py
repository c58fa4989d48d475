"""Batches of hashed items: to test and set in a copy of a filter, deduplicate, and pack for the scripts.

A layout hashes a batch once, into a `BatchBits`.  Each layout has its own representation, with the same
operations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol, Self, TypeAlias

from bloomredis.bits.arrays import NDArray, np
from bloomredis.bits.block_hashing import NUMBER_BYTES, masks_at

Bytes: TypeAlias = "NDArray[np.uint8]"

_FEW_BITS: Final = 2048
"""The most bits for which `bitwise_or.at` is faster than one row at a time with a check for lost updates."""

_ODD: Final = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: Knuth's multiplier


class BitAddresses(NamedTuple):
    """The byte index and mask of each bit: one row a probe, one column an item."""

    at: NDArray[np.intp]
    masks: Bytes

    def take(self, items: NDArray[np.intp]) -> BitAddresses:
        """Return the addresses of the items at these indexes."""
        return BitAddresses(self.at.take(items, axis=1), self.masks.take(items, axis=1))

    def missing(self, bitmap: Bytes) -> NDArray[np.intp]:
        """Return the indexes of the items with an unset bit, ascending."""
        missing: NDArray[np.intp] = (self._set_bits(bitmap).min(axis=0) == 0).nonzero()[0]
        return missing

    def set(self, bitmap: Bytes) -> None:
        """Set the bits of all items."""
        if self.at.size <= _FEW_BITS:
            np.bitwise_or.at(bitmap, self.at, self.masks)
            return
        for at, masks in zip(self.at, self.masks, strict=True):
            bitmap[at] |= masks  # if two items share a byte, only one is written
        lost = self._set_bits(bitmap) == 0
        if lost.any():
            np.bitwise_or.at(bitmap, self.at[lost], self.masks[lost])

    def _set_bits(self, bitmap: Bytes) -> Bytes:
        return bitmap.take(self.at) & self.masks


class BatchBits(ABC):
    """The bits of a batch of items, in the layout's compact form."""

    @abstractmethod
    def take(self, items: NDArray[np.intp]) -> Self:
        """Return the bits of the items at these indexes."""

    @abstractmethod
    def rows(self) -> Sequence[NDArray[Any]]:
        """Return the whole state as arrays of integers, each with one entry an item."""

    @abstractmethod
    def addresses(self) -> BitAddresses:
        """Return the addresses of all bits."""

    @abstractmethod
    def packed(self) -> bytes:
        """Return the items' bits, packed for the scripts."""

    def __len__(self) -> int:
        return len(self.rows()[0])

    @property
    def nbytes(self) -> int:
        """The memory that the bits take, in bytes."""
        return sum(row.nbytes for row in self.rows())

    def insert(self, bitmap: Bytes) -> Self:
        """Set the bits of all items; return the new items: with an unset bit and no equal item before."""
        addresses = self.addresses()
        missing = addresses.missing(bitmap)
        addresses.set(bitmap)
        absent = self if len(missing) == len(self) else self.take(missing)
        first = absent.first_occurrences()
        return absent if len(first) == len(absent) else absent.take(first)

    def first_occurrences(self) -> NDArray[np.intp]:
        """Return the indexes of the first of each set of equal items, ascending.

        Items are compared by a 64-bit hash of their bits.
        """
        keys = np.zeros(len(self), dtype=np.uint64)
        odd = np.uint64(_ODD)
        for row in self.rows():
            keys *= odd
            keys += row
        ordered = np.sort(keys)
        if not (ordered[1:] == ordered[:-1]).any():
            return np.arange(len(keys))
        return np.sort(np.unique(keys, return_index=True)[1])


@dataclass(frozen=True, slots=True)
class ScatteredBits(BatchBits):
    """Bits anywhere in the filter: one row of offsets a probe."""

    offsets: NDArray[np.uint32]

    def take(self, items: NDArray[np.intp]) -> ScatteredBits:
        """Return the bits of the items at these indexes."""
        return ScatteredBits(self.offsets.take(items, axis=1))

    def rows(self) -> Sequence[NDArray[np.uint32]]:
        """Return the offsets."""
        return list(self.offsets)

    def addresses(self) -> BitAddresses:
        """Return the addresses of all bits."""
        return BitAddresses(
            (self.offsets >> np.uint32(3)).astype(np.intp), byte_masks(self.offsets.astype(np.uint8))
        )

    def packed(self) -> bytes:
        """Return the offsets as little-endian u32, item after item."""
        return self.offsets.T.astype("<u4", copy=False).tobytes()


@dataclass(frozen=True, slots=True)
class BlockBits(BatchBits):
    """Bits of the blocked layout: for each region a row of blocks and a row for each position."""

    blocks: NDArray[np.uint32]
    positions: NDArray[np.uint8]
    block_bits: int

    def take(self, items: NDArray[np.intp]) -> BlockBits:
        """Return the bits of the items at these indexes."""
        return BlockBits(self.blocks.take(items, axis=1), self.positions.take(items, axis=2), self.block_bits)

    def rows(self) -> Sequence[NDArray[Any]]:
        """Return the blocks and the positions."""
        return [*self.blocks, *chain(*self.positions)]

    def addresses(self) -> BitAddresses:
        """Return the addresses of all bits."""
        first = self.blocks.astype(np.intp) * (self.block_bits // 8)
        at = first[:, None] + (self.positions >> np.uint8(3))
        regions, bits, items = at.shape
        rows = regions * bits, items
        return BitAddresses(at.reshape(rows), byte_masks(self.positions).reshape(rows))

    def packed(self) -> bytes:
        """Return each item's blocks: the number as little-endian u32, then the mask."""
        regions, items = self.blocks.shape
        entry_bytes = NUMBER_BYTES + self.block_bits // 8
        packed = np.empty((items, regions, entry_bytes // 4), dtype="<u4")
        packed[:, :, 0] = self.blocks.T
        for i, positions in enumerate(self.positions):
            packed[:, i, 1:] = masks_at(positions, self.block_bits).view("<u4")
        return packed.tobytes()


def byte_masks(bits: Bytes) -> Bytes:
    """Return the mask of each bit in its byte, given bit numbers, of which only the low three bits count."""
    masks: Bytes = np.right_shift(np.uint8(0x80), bits & np.uint8(7))
    return masks


class Hashing(Protocol):
    """A layout that can hash a batch."""

    def hashed(self, items: Sequence[str | bytes]) -> BatchBits:
        """Return the bits of a batch of encoded items."""


class PackedBatch(NamedTuple):
    """A batch of encoded items, packed for one layout."""

    layout: Any  # a Packing
    encoded: Sequence[str | bytes]
    data: bytes

    def packed(self) -> bytes:
        """Return the items' bits, packed for the scripts."""
        return self.data


class HashedBatch(NamedTuple):
    """A batch of encoded items with their bits in one layout, hashed once for several uses."""

    layout: Hashing
    encoded: Sequence[str | bytes]
    probes: BatchBits
    addresses: BitAddresses

    def packed(self) -> bytes:
        """Return the items' bits, packed for the scripts."""
        return self.probes.packed()

    def take(self, items: NDArray[np.intp]) -> HashedBatch:
        """Return the items at these indexes."""
        encoded = list(map(self.encoded.__getitem__, items.tolist()))
        return HashedBatch(self.layout, encoded, self.probes.take(items), self.addresses.take(items))


Encoded = Sequence[str | bytes]
Prepared = HashedBatch | PackedBatch


def items_and_prepared(batch: Encoded | Prepared) -> tuple[Encoded, Prepared | None]:
    """Return the encoded items of a batch, and the batch itself if it is packed or hashed."""
    return (batch.encoded, batch) if isinstance(batch, HashedBatch | PackedBatch) else (batch, None)


def hashed(layout: Hashing, encoded: Sequence[str | bytes]) -> HashedBatch:
    """Return the items with their bits in a layout."""
    probes = layout.hashed(encoded)
    return HashedBatch(layout, encoded, probes, probes.addresses())
