"""What the first 64 bytes of a filter's key say (the format is specified in lua/FORMAT.md)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Final

from bloomredis.bits.limits import BLOCK_BITS, COUNTER_BITS, HEADER_BITS, HEADER_BYTES, MAX_BITS_A_BLOCK

IDENTITY_BYTES: Final = 56
"""All but the count: what a script compares before it touches a bit."""

MAGIC: Final = b"bloomr"
VERSION: Final = 1
LAYOUT_CODES: Final = {"classic": 1, "blocked": 2}
LAYOUT_NAMES: Final = {code: name for name, code in LAYOUT_CODES.items()}

KINDS: Final = (
    "BloomFilter",
    "ScalingBloomFilter",
    "RotatingBloomFilter",
    "ShardedBloomFilter",
    "CountingBloomFilter",
)
"""What a header belongs to, by its code: a filter, or the root of something that is made of filters."""
FILTER: Final = KINDS.index("BloomFilter")
COUNTING: Final = KINDS.index("CountingBloomFilter")

_FORMAT: Final = struct.Struct(">6sBBBBB5sQQd8sQQ")
_RESERVED: Final = bytes(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A filter's parameters, its generation (8 random bytes) and the count of items added.

    `created_at` is the server's clock in microseconds since 1970; `blocks_per_item` is 0 in the classic
    layout; `kind` says what follows the header.  Of a filter that counts, `num_bits` is the number of
    counters.
    """

    layout: str
    num_hashes: int
    num_bits: int
    capacity: int
    error_rate: float
    generation: bytes
    created_at: int = 0
    count: int = 0
    blocks_per_item: int = 0
    kind: int = FILTER

    def pack(self) -> bytes:
        """Return the 64 bytes that are stored."""
        return _FORMAT.pack(
            MAGIC,
            VERSION,
            LAYOUT_CODES[self.layout],
            self.num_hashes,
            self.blocks_per_item,
            self.kind,
            _RESERVED,
            self.num_bits,
            self.capacity,
            self.error_rate,
            self.generation,
            self.created_at,
            self.count,
        )

    @property
    def identity(self) -> bytes:
        """The bytes that every script call carries and compares: all but the count."""
        return self.pack()[:IDENTITY_BYTES]

    @property
    def size_bytes(self) -> int:
        """Length of the whole string: header and bits."""
        return HEADER_BYTES + (self.num_bits * cell_bits(self.kind) + 7) // 8

    @property
    def parameters(self) -> Header:
        """The same without what differs between two filters made alike."""
        return replace(self, generation=bytes(8), created_at=0, count=0)


def cell_bits(kind: int) -> int:
    """Return the size of what a probe stands for."""
    return COUNTER_BITS if kind == COUNTING else 1


def parse(data: bytes, kind: int = FILTER) -> Header:
    """Read a header of that kind; `ValueError` says what is wrong with another one."""
    if len(data) != HEADER_BYTES:
        raise ValueError(f"a header has {HEADER_BYTES} bytes, not {len(data)}")
    magic, version, code, hashes, blocks, found, reserved, *numbers = _FORMAT.unpack(data)
    bits, capacity, rate, generation, created, count = numbers
    if magic != MAGIC:
        raise ValueError(f"it begins with {magic!r}, not {MAGIC!r}")
    if version != VERSION:
        raise ValueError(f"it has format version {version}; this release reads version {VERSION}")
    if code not in LAYOUT_NAMES or found >= len(KINDS) or reserved != _RESERVED:
        raise ValueError(
            f"it has layout {code}, kind {found}, options {reserved.hex()}, unknown to this release"
        )
    if found != kind:
        raise ValueError(f"it is that of a {KINDS[found]}, not of a {KINDS[kind]}; use {KINDS[found]}")
    if not (
        hashes >= 1
        and 1 <= bits <= (2**32 - HEADER_BITS) // cell_bits(kind)
        and capacity >= 1
        and 0.0 < rate < 1.0
        and _blocks_fit(LAYOUT_NAMES[code], blocks, bits, hashes)
        and (kind != COUNTING or blocks == 0)
    ):
        raise ValueError(
            f"its parameters make no filter: num_hashes {hashes}, num_bits {bits}, "
            f"capacity {capacity}, error_rate {rate}, blocks_per_item {blocks}"
        )
    return Header(
        layout=LAYOUT_NAMES[code],
        num_hashes=hashes,
        num_bits=bits,
        capacity=capacity,
        error_rate=rate,
        generation=generation,
        created_at=created,
        count=count,
        blocks_per_item=blocks,
        kind=kind,
    )


def _blocks_fit(layout: str, blocks: int, bits: int, hashes: int) -> bool:
    if layout == "classic":
        return blocks == 0
    return (
        blocks >= 1
        and bits % BLOCK_BITS == 0
        and bits >= blocks * BLOCK_BITS
        and hashes % blocks == 0
        and hashes <= blocks * MAX_BITS_A_BLOCK
    )
