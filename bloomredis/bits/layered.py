"""Items packed for several layers at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Final

import numpy as np
from mmh3 import hash_bytes

from bloomredis.bits.blocked import _ALL, _BITS, _BLOCK, _MASKS, _PACKED, Blocked, _all_draws, _picks
from bloomredis.bits.classic import Classic


@dataclass(frozen=True)
class Layered:
    """The layouts of several layers, the newest first: an item is packed for one after the other."""

    layers: tuple[Classic | Blocked, ...]

    @cached_property
    def item_bytes(self) -> int:
        """Length of one item's packed bytes."""
        return sum(layer.item_bytes for layer in self.layers)

    @cached_property
    def cost(self) -> float:
        """What setting an item costs a server, in probes: testing a layer costs what setting one does."""
        return sum(layer.cost for layer in self.layers)

    @cached_property
    def _in_blocks(self) -> BlockedLayers | None:
        """The layers, if all are in blocks."""
        blocks = [layer for layer in self.layers if isinstance(layer, Blocked)]
        return BlockedLayers(blocks) if len(blocks) == len(self.layers) else None

    def pack_one(self, item: bytes) -> bytes:
        """Return what the scripts are sent for one item."""
        if self._in_blocks:
            return self._in_blocks.pack_one(item)
        return b"".join([layer.pack_one(item) for layer in self.layers])

    def pack(self, items: Sequence[str | bytes]) -> bytes:
        """Return what the scripts are sent for many items, item after item."""
        return b"".join(
            self._packed(items[start : start + _PACKED_TOGETHER])
            for start in range(0, len(items), _PACKED_TOGETHER)
        )

    def _packed(self, items: Sequence[str | bytes]) -> bytes:
        if self._in_blocks:
            return self._in_blocks.pack(items)
        columns = [
            np.frombuffer(layer.pack(items), dtype=np.uint8).reshape(len(items), layer.item_bytes)
            for layer in self.layers
        ]
        return np.concatenate(columns, axis=1).tobytes()


_PACKED_TOGETHER: Final = 1024
"""Items that are packed at once for several layers, half a kilobyte each and more."""


@dataclass(frozen=True)
class BlockedLayers:
    """Several such layouts; an item is packed for one after the other, and what they share is done once.

    The positions of an item's bits in its blocks are the same in all of them, as far as they go.
    """

    layouts: Sequence[Blocked]

    @cached_property
    def _widest(self) -> tuple[int, int]:
        """The most blocks an item and bits a block."""
        regions = max(layout.blocks_per_item for layout in self.layouts)
        return regions, max(layout.bits_per_block for layout in self.layouts)

    def pack_one(self, item: bytes) -> bytes:
        """Return what `pack_one` of each layout does."""
        regions, bits = self._widest
        drawn = _picks(hash_bytes(item), [_ALL] * regions, bits)
        masks: dict[tuple[int, int], bytes] = {}
        pieces: list[bytes] = []
        for layout in self.layouts:
            own = layout.bits_per_block
            for region, (first, size) in enumerate(layout.regions):
                word, positions = drawn[region]
                mask = masks.get((region, own))
                if mask is None:
                    mask = sum(map(_BITS.__getitem__, positions[:own])).to_bytes(32, "big")
                    masks[region, own] = mask
                pieces += _BLOCK.pack(first + (word * size >> 32)), mask
        return b"".join(pieces)

    def pack(self, items: Sequence[str | bytes]) -> bytes:
        """Return the blocks of all items, item after item."""
        columns = [0, *accumulate(layout.blocks_per_item for layout in self.layouts)]
        packed = np.empty((len(items), columns[-1], _PACKED // 4), dtype="<u4")
        for region, (words, positions) in enumerate(zip(*_all_draws(items, *self._widest), strict=True)):
            masks = np.zeros((len(items), 4), dtype="<u8")
            for count, row in enumerate(positions, 1):
                masks |= _MASKS.take(row, axis=0)
                for layout, column in zip(self.layouts, columns, strict=False):
                    if layout.bits_per_block == count and region < layout.blocks_per_item:
                        first, size = layout.regions[region]
                        blocks = words * np.uint64(size) >> np.uint64(32)
                        packed[:, column + region, 0] = blocks + np.uint64(first)
                        packed[:, column + region, 1:] = masks.view("<u4")
        return packed.tobytes()
