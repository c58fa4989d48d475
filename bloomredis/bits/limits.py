"""Numbers that the format fixes (lua/FORMAT.md)."""

from __future__ import annotations

from typing import Final

HEADER_BYTES: Final = 64
HEADER_BITS: Final = 8 * HEADER_BYTES

MAX_HASHES: Final = 255
"""The limit of hashes an item; the header stores their number in one byte."""
BLOCK_BITS: Final = 256
"""The size of a large block in the blocked layout."""
SMALL_BLOCK_BITS: Final = 128
"""The size of a small block, which is faster to read and write but makes the filter a little larger."""
MAX_BITS_A_BLOCK: Final = 12
"""The limit of bits that an item sets in a block: a digest has 12 bytes after the block's number."""
COUNTER_BITS: Final = 4
"""The size of a counter in a counting filter."""
