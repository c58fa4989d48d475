"""The header: the first 64 bytes under a filter's key (lua/FORMAT.md)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Final

from bloomredis.bits.limits import (
    BLOCK_BITS,
    COUNTER_BITS,
    HEADER_BITS,
    HEADER_BYTES,
    MAX_BITS_A_BLOCK,
    SMALL_BLOCK_BITS,
)
from bloomredis.bits.sizing import RULES

IDENTITY_BYTES: Final = 56
"""All but the count: a script compares them before it touches a bit."""
GENERATION: Final = slice(40, 48)
"""Where the generation is, in this format and in those to come."""

_MAGIC: Final = b"bloomr"
_VERSION: Final = 1
_LAYOUTS: Final = {1: ("classic", 0), 2: ("blocked", BLOCK_BITS), 3: ("blocked", SMALL_BLOCK_BITS)}
"""Name and size of the blocks of each layout, by its code; who does not know a code refuses the header."""
_LAYOUT_CODES: Final = {layout: code for code, layout in _LAYOUTS.items()}

KINDS: Final = (
    "BloomFilter",
    "ScalingBloomFilter",
    "RotatingBloomFilter",
    "ShardedBloomFilter",
    "CountingBloomFilter",
)
"""Owners of a header, by their code: a filter, or the record of one that is made of several."""
FILTER: Final = KINDS.index("BloomFilter")
COUNTING: Final = KINDS.index("CountingBloomFilter")
SCALING: Final = KINDS.index("ScalingBloomFilter")
ADOPTED: Final = 2
"""Rules of a filter that grows whose first layer was a filter of its own: that has the size in the header."""
_OF_LAYERS: Final = {KINDS.index("ScalingBloomFilter"), KINDS.index("RotatingBloomFilter")}

_FORMAT: Final = struct.Struct(">6sBBBBBBB3sIIQd8sQQ")

BEING_REBUILT: Final = 1
"""Bit of `rebuilds`: the filter has a successor, which gets all items too."""
REBUILT: Final = 2
"""Bit of `rebuilds`: the filter is the successor of another one."""
TAG_BYTES: Final = 3
_LATEST: Final = 253_402_300_799_999_999
"""The end of the year 9999, as `created_at`: the latest time of a datetime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A filter's parameters, its generation (8 random bytes) and the count of items added.

    `created_at` is the server's clock in microseconds since 1970; `blocks_per_item` and `block_bits` are 0 in
    the classic layout; `kind` says what follows the header.  Of a filter that counts, `num_bits` is the
    number of counters.  `rules` are those that the layers of a filter in layers are sized by, else 0.
    `rebuilds` are the bits above; `tag` is random once it was rebuilt, or that was abandoned.  `encoding`
    says what items go through before they are hashed (`bits.encoding.number_of`).
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
    block_bits: int = 0
    kind: int = FILTER
    rules: int = 0
    rebuilds: int = 0
    tag: bytes = bytes(TAG_BYTES)
    encoding: int = 0

    def pack(self) -> bytes:
        """Return the 64 bytes that are stored."""
        return _FORMAT.pack(
            _MAGIC,
            _VERSION,
            _LAYOUT_CODES[self.layout, self.block_bits],
            self.num_hashes,
            self.blocks_per_item,
            self.kind,
            self.rules,
            self.rebuilds,
            self.tag,
            self.encoding,
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
        """The same without the fields that differ between two filters with the same parameters."""
        return replace(self, generation=bytes(8), created_at=0, count=0, rebuilds=0, tag=bytes(TAG_BYTES))

    @property
    def is_being_rebuilt(self) -> bool:
        """True if the filter has a successor."""
        return bool(self.rebuilds & BEING_REBUILT)

    def as_new(self, generation: bytes, created_at: int) -> Header:
        """The header of another filter with the same bits, which no rebuild has made."""
        own = replace(self, rebuilds=0, tag=bytes(TAG_BYTES))
        return replace(own, generation=generation, created_at=created_at)

    def emptied(self, generation: bytes) -> Header:
        """The header of the same filter once it is cleared."""
        return replace(self, generation=generation, rebuilds=self.rebuilds & REBUILT)

    @property
    def is_possible(self) -> bool:
        """True if a filter can have these parameters."""
        return (
            self.num_hashes >= 1
            and 1 <= self.num_bits <= (2**32 - HEADER_BITS) // cell_bits(self.kind)
            and self.capacity >= 1
            and 0.0 < self.error_rate < 1.0
            and self.created_at <= _LATEST
            and self._has_possible_blocks()
        )

    def _has_possible_blocks(self) -> bool:
        blocks = self.blocks_per_item
        if self.layout == "classic":
            return blocks == 0
        return (
            self.kind != COUNTING
            and (self.kind not in _OF_LAYERS or self.rules == ADOPTED or self.block_bits == BLOCK_BITS)
            and blocks >= 1
            and self.num_bits % self.block_bits == 0
            and self.num_bits >= blocks * self.block_bits
            and self.num_hashes % blocks == 0
            and self.num_hashes <= blocks * MAX_BITS_A_BLOCK
        )


def cell_bits(kind: int) -> int:
    """Return the bits of a cell: a counter has four, a bit one."""
    return COUNTER_BITS if kind == COUNTING else 1


def identified(identity: bytes) -> Header:
    """Return the header of an identity, which lacks the count; what follows the identity is left out."""
    return parse(identity[:IDENTITY_BYTES] + bytes(HEADER_BYTES - IDENTITY_BYTES))


def parse(data: bytes, kind: int = FILTER) -> Header:
    """Return a header of that kind.  Raises `ValueError`, which names the fault, for other bytes."""
    if len(data) != HEADER_BYTES:
        raise ValueError(f"a header has {HEADER_BYTES} bytes, not {len(data)}")
    magic, version, code, hashes, blocks, found, rules, rebuilds, tag, *numbers = _FORMAT.unpack(data)
    if magic != _MAGIC:
        raise ValueError(f"it begins with {magic!r}, not {_MAGIC!r}")
    if version != _VERSION:
        raise ValueError(f"it has format version {version}; this release reads version {_VERSION}")
    known_rules = (ADOPTED if found == SCALING else RULES) if {found, kind} & _OF_LAYERS else 0
    known_rebuilds = BEING_REBUILT | REBUILT if found == FILTER else 0
    is_known = rules <= known_rules and rebuilds <= known_rebuilds and (found == FILTER or not any(tag))
    if code not in _LAYOUTS or found >= len(KINDS) or not is_known:
        raise ValueError(
            f"it has layout {code}, kind {found}, options {data[11:16].hex()}, unknown to this release"
        )
    if found != kind:
        raise ValueError(f"it is that of a {KINDS[found]}, not of a {KINDS[kind]}; use {KINDS[found]}")
    names = ("encoding", "num_bits", "capacity", "error_rate", "generation", "created_at", "count")
    fields = dict(zip(names, numbers, strict=True))
    layout, block_bits = _LAYOUTS[code]
    parameters = {"num_hashes": hashes, "blocks_per_item": blocks, "block_bits": block_bits}
    options = {"rules": rules, "rebuilds": rebuilds, "tag": tag}
    head = Header(layout=layout, kind=kind, **options, **parameters, **fields)
    if not head.is_possible:
        raise ValueError(
            f"its parameters make no filter: num_hashes {hashes}, num_bits {head.num_bits}, "
            f"capacity {head.capacity}, error_rate {head.error_rate}, blocks_per_item {blocks}, "
            f"created_at {head.created_at}"
        )
    return head
