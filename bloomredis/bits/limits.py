"""Numbers that the format fixes (lua/FORMAT.md)."""

from __future__ import annotations

from typing import Final

HEADER_BYTES: Final = 64
HEADER_BITS: Final = 8 * HEADER_BYTES

MAX_HASHES: Final = 255
"""Limit of the hashes an item; the header has one byte for their number."""
BLOCK_BITS: Final = 256
"""Size of a block in the blocked layout, if it is not `SMALL_BLOCK_BITS`."""
SMALL_BLOCK_BITS: Final = 128
"""The other size: reading and writing such a block takes less time, and the filter a little more memory."""
MAX_BITS_A_BLOCK: Final = 12
"""Limit of the bits that an item sets in a block; a digest has so many bytes left for them."""
COUNTER_BITS: Final = 4
"""Size of a counter in a counting filter."""
