"""The filter of a run that shares its lines with no other: in this process, without a server.

It answers as a `ScalingBloomFilter` or `RotatingBloomFilter` of the same parameters would, item by item: its
layers have the same sizes and bits.  It stores nothing and ends with the run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from mmap import mmap
from typing import Any, Final, NamedTuple

from bloomredis.bits.arrays import NDArray, np
from bloomredis.bits.bitmap import Bits
from bloomredis.bits.block_hashing import blocks_of, masks_of_batch, next_words, words_of
from bloomredis.bits.blocked import FEWEST_OF_NUMPY, Blocked
from bloomredis.bits.hashing import HASHED_AT_ONCE
from bloomredis.stored import planning
from bloomredis.stored.layers.record import LayerRecord, RotatingRecord, ScalingRecord

_SINGLY: Final = 1000
"""The first items of a run, for which the import of numpy would take longer than a loop."""
_SLICES: Final = 4
_SHORTEST, _LONGEST = 0.4, 10**9
_SLOTS: Final = 1 << 16
"""Blocks that differ in this modulus are certainly different."""


class _Layer:
    """A layer in the blocked layout, and the number of items that it may still take."""

    def __init__(self, record: LayerRecord, now: int) -> None:
        head = record.planned(record.newest)
        layout: Any = planning.stored(head)
        self.layout: Blocked = layout
        # Pages of a map take no memory before an item sets a bit in them.
        self.bits = Bits(layout, memoryview(mmap(-1, layout.num_bits // 8)))
        self.room = head.capacity
        self.began = now

    def has_many(self, words: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Return whether the layer has each item, given by its words."""
        found = np.zeros(len(words), dtype=np.bool_)
        left = np.arange(len(words))
        for i, region in enumerate(self.layout.regions):
            words = next_words(words) if i else words
            blocks, masks = self._masks(words, region)
            there = ~_any(masks & ~self._blocks.take(blocks, axis=0))
            left, words = left[there], words[there]
        found[left] = True
        return found

    def add_many(self, words: NDArray[np.uint32]) -> NDArray[np.intp]:
        """Add items while there is room; return the indexes of the new ones, and of one without room."""
        regions = []
        for i, region in enumerate(self.layout.regions):
            words = next_words(words) if i else words
            blocks, masks = self._masks(words, region)
            regions.append(_Drawn(blocks, masks, self._blocks.take(blocks, axis=0)))
        new = _new_in_order(regions)
        added = new[: self.room]
        for each in regions:
            self._set(each.take(added))
        self.room -= len(added)
        return new[: len(added) + 1]

    def _masks(
        self, words: NDArray[np.uint32], region: tuple[int, int]
    ) -> tuple[NDArray[np.intp], NDArray[np.uint64]]:
        blocks = blocks_of(words[:, 0], *region).astype(np.intp)
        return blocks, masks_of_batch(words, self.layout.bits_per_block, self.layout.block_bits)

    @property
    def _blocks(self) -> NDArray[np.uint64]:
        """The bits of the layer, a row of words for each block."""
        return self.bits.array.view("<u8").reshape(self.layout.num_blocks, -1)

    def _set(self, drawn: _Drawn) -> None:
        while len(drawn.blocks):
            self._blocks[drawn.blocks[::-1]] = (drawn.stored | drawn.masks)[::-1]
            # Of several items in one block, the first is written last, and the others are not written.
            drawn = drawn.take((~_is_first(drawn.blocks)).nonzero()[0])
            drawn = drawn._replace(stored=self._blocks.take(drawn.blocks, axis=0))


class _Drawn(NamedTuple):
    """For each item of a batch its block in one region, the mask of its bits there, and the stored bits."""

    blocks: NDArray[np.intp]
    masks: NDArray[np.uint64]
    stored: NDArray[np.uint64]

    def take(self, items: NDArray[np.intp]) -> _Drawn:
        """Return those of the items at these indexes."""
        return _Drawn(self.blocks[items], self.masks.take(items, axis=0), self.stored.take(items, axis=0))


def _new_in_order(regions: Sequence[_Drawn]) -> NDArray[np.intp]:
    """Return the indexes of the items that lack bits which no item before them in the batch sets.

    An item with a missing bit in a block that no earlier item has drawn is new.  The few others are compared
    with the items before them one by one.
    """
    missing = [each.masks & ~each.stored for each in regions]
    lacks = list(map(_any, missing))
    new: NDArray[np.intp] = np.logical_or.reduce(lacks).nonzero()[0]
    certain = np.zeros(len(new), dtype=np.bool_)
    for each, lacking in zip(regions, lacks, strict=True):
        certain |= lacking[new] & _is_first(each.blocks[new])
    if certain.all():
        return new
    for each, absent in zip(regions, missing, strict=True):
        slots = each.blocks[new] % _SLOTS
        marked = np.zeros(_SLOTS, dtype=np.bool_)
        marked[slots[~certain]] = True
        before: dict[int, int] = {}
        for at in marked[slots].nonzero()[0].tolist():
            i = new[at]
            block, own = int(each.blocks[i]), int.from_bytes(absent[i].tobytes())
            seen = before.get(block, 0)
            certain[at] |= bool(own & ~seen)
            before[block] = seen | own
    found: NDArray[np.intp] = new[certain]
    return found


def _is_first(blocks: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return True where no block before is the same; it may be False where none is, but not for the first."""
    slots, numbers = blocks % _SLOTS, np.arange(len(blocks))
    first = _scratch()
    first[slots[::-1]] = numbers[::-1]  # the last one that is written stays
    is_first: NDArray[np.bool_] = first[slots] == numbers
    return is_first


@cache
def _scratch() -> NDArray[np.uint16]:
    return np.empty(_SLOTS, dtype=np.uint16)


def _any(words: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return whether a row has a bit."""
    found: NDArray[np.bool_] = (words != 0).view("<u4")[:, 0] != 0
    return found


class PrivateFilter:
    """A filter in this process, in layers, the newest first.

    :param record: its parameters.
    """

    def __init__(self, record: LayerRecord) -> None:
        self._record = record
        self._layers = [_Layer(record, self._now())]
        self._read = 0

    @classmethod
    def of(cls, capacity: int, error_rate: float, window: float | None = None) -> PrivateFilter:
        """Return a filter that grows or, with a window in seconds, forgets."""
        kind = ScalingRecord.kind if window is None else RotatingRecord.kind
        head = planning.whole(capacity, error_rate, None, kind)
        if window is None:
            return cls(ScalingRecord(head=head, expansion=2, tightening_ratio=0.5))
        if not _SHORTEST <= window <= _LONGEST:
            raise ValueError(f"a window must last from {_SHORTEST} to {_LONGEST:,} seconds, not {window:g}")
        return cls(RotatingRecord(head=head, width=-(-int(window * 1e6) // _SLICES), slices=_SLICES))

    def add_many(self, items: Sequence[bytes]) -> list[bool]:
        """Add items; return for each whether it was new."""
        self._read += len(items)
        self._forget()
        if len(items) < FEWEST_OF_NUMPY or self._read <= _SINGLY:
            return list(map(self._add, items))
        answers = np.zeros(len(items), dtype=np.bool_)
        for start in range(0, len(items), HASHED_AT_ONCE):
            answers[start : start + HASHED_AT_ONCE] = self._add_batch(items[start : start + HASHED_AT_ONCE])
        new: list[bool] = answers.tolist()
        return new

    def _add(self, item: bytes) -> bool:
        if any(layer.bits.has(item) for layer in self._layers):
            return False
        if self._layers[0].room < 1:
            self._grow()
        self._layers[0].bits.add(item)
        self._layers[0].room -= 1
        return True

    def _add_batch(self, items: Sequence[bytes]) -> NDArray[np.bool_]:
        words, new = words_of(items), np.zeros(len(items), dtype=np.bool_)
        left = np.arange(len(items))
        older = self._layers[1:]
        while left.size:
            for layer in older:
                left = left[~layer.has_many(words[left])]
            newest = self._layers[0]
            room = newest.room
            found = newest.add_many(words[left])
            new[left[found[:room]]] = True
            if len(found) <= room:
                break
            left, older = left[found[room] :], [newest]
            self._grow()
        return new

    def _grow(self) -> None:
        self._record = self._record.following()
        self._layers.insert(0, _Layer(self._record, self._now()))

    def _forget(self) -> None:
        """Forget the layers of a rotating filter that have ended; begin one with the slice."""
        record, now = self._record, self._now()
        if isinstance(record, RotatingRecord):
            self._layers = [layer for layer in self._layers if now < record.end(layer.began)]
            if not self._layers or self._layers[0].began // record.width < now // record.width:
                self._grow()

    @staticmethod
    def _now() -> int:
        return int(time.time() * 1_000_000)
