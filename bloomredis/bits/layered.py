"""The packing of items for several layers of one filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from mmh3 import hash_bytes

from bloomredis.bits.arrays import np
from bloomredis.bits.block_hashing import (
    ALL_WORDS,
    BLOCK_NUMBER,
    NUMBER_BYTES,
    blocks_of,
    mask_of,
    mask_rows,
    picks,
    picks_of_batch,
)
from bloomredis.bits.blocked import Blocked
from bloomredis.bits.classic import Classic
from bloomredis.bits.limits import BLOCK_BITS
from bloomredis.derived import derived


@dataclass(frozen=True)
class Layered:
    """The layouts of several layers, the newest first; an item is packed for each layer in turn."""

    layers: tuple[Classic | Blocked, ...]

    @derived
    def item_bytes(self) -> int:
        """The length of one item's packed bytes."""
        return sum(layer.item_bytes for layer in self.layers)

    @derived
    def cost(self) -> float:
        """The server time of setting an item, in probes; a test of a layer takes as long as an add to it."""
        return sum(layer.cost for layer in self.layers)

    @derived
    def _blocked(self) -> BlockedLayers | None:
        """The layers if all have blocks of 256 bits, as the layers of stored filters have; else None."""
        blocks = [
            layer for layer in self.layers if isinstance(layer, Blocked) and layer.block_bits == BLOCK_BITS
        ]
        return BlockedLayers(blocks) if len(blocks) == len(self.layers) else None

    def pack_one(self, item: bytes) -> bytes:
        """Return one encoded item packed for the scripts."""
        if self._blocked:
            return self._blocked.pack_one(item)
        return b"".join([layer.pack_one(item) for layer in self.layers])

    def pack(self, items: Sequence[str | bytes]) -> bytes:
        """Return encoded items packed for the scripts, item after item."""
        return b"".join(
            self._packed(items[start : start + _PACKED_TOGETHER])
            for start in range(0, len(items), _PACKED_TOGETHER)
        )

    def _packed(self, items: Sequence[str | bytes]) -> bytes:
        if self._blocked:
            return self._blocked.pack(items)
        columns = [
            np.frombuffer(layer.pack(items), dtype=np.uint8).reshape(len(items), layer.item_bytes)
            for layer in self.layers
        ]
        return np.concatenate(columns, axis=1).tobytes()


_PACKED_TOGETHER: Final = 1024
"""The number of items to pack at a time; one item takes half a kilobyte or more."""


@dataclass(frozen=True)
class BlockedLayers:
    """Several blocked layouts with blocks of 256 bits; an item is hashed once and packed for each in turn.

    An item has the same positions in all layouts; each layout uses the first `bits_per_block` of them.
    """

    layouts: Sequence[Blocked]

    @derived
    def _widest(self) -> tuple[int, int]:
        """The largest number of blocks an item, and the largest number of bits a block."""
        regions = max(layout.blocks_per_item for layout in self.layouts)
        return regions, max(layout.bits_per_block for layout in self.layouts)

    def pack_one(self, item: bytes) -> bytes:
        """Return one encoded item's blocks in each layout."""
        regions, bits = self._widest
        drawn = picks(hash_bytes(item), [ALL_WORDS] * regions, bits, BLOCK_BITS)
        masks: dict[tuple[int, int], bytes] = {}
        pieces: list[bytes] = []
        for layout in self.layouts:
            own = layout.bits_per_block
            for region, (first, size) in enumerate(layout.regions):
                word, positions = drawn[region]
                mask = masks.get((region, own))
                if mask is None:
                    mask = mask_of(positions[:own], BLOCK_BITS).to_bytes(32)
                    masks[region, own] = mask
                pieces += BLOCK_NUMBER.pack(first + (word * size >> 32)), mask
        return b"".join(pieces)

    def pack(self, items: Sequence[str | bytes]) -> bytes:
        """Return the blocks of encoded items in each layout, item after item."""
        columns = [0, *accumulate(layout.blocks_per_item for layout in self.layouts)]
        packed = np.empty((len(items), columns[-1], (NUMBER_BYTES + BLOCK_BITS // 8) // 4), dtype="<u4")
        rows = mask_rows(BLOCK_BITS)
        found = picks_of_batch(items, *self._widest, BLOCK_BITS)
        for region, (words, positions) in enumerate(zip(found.words, found.positions, strict=True)):
            masks = np.zeros((len(items), 4), dtype="<u8")
            for count, row in enumerate(positions, 1):
                masks |= rows.take(row, axis=0)
                for layout, column in zip(self.layouts, columns, strict=False):
                    if layout.bits_per_block == count and region < layout.blocks_per_item:
                        first, size = layout.regions[region]
                        packed[:, column + region, 0] = blocks_of(words, first, size)
                        packed[:, column + region, 1:] = masks.view("<u4")
        return packed.tobytes()
