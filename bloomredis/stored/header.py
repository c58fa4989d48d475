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
from bloomredis.errors import FilterMismatchError

IDENTITY_BYTES: Final = 56
"""The length of the header without the count: a script compares these bytes before it touches a bit."""
GENERATION: Final = slice(40, 48)
"""The bytes of the generation, in this format and in later ones."""

KIND_BYTE: Final = 10
"""The index of the byte with the kind, which is an index of `KINDS`."""
FLAGS_BYTE: Final = 12

_MAGIC: Final = b"bloomr"
_VERSION: Final = 1
_LAYOUTS: Final = {1: ("classic", 0), 2: ("blocked", BLOCK_BITS), 3: ("blocked", SMALL_BLOCK_BITS)}
"""The name and block size of each layout, by code; a release refuses a header with an unknown code."""
_LAYOUT_CODES: Final = {layout: code for code, layout in _LAYOUTS.items()}

KINDS: Final = (
    "BloomFilter",
    "ScalingBloomFilter",
    "RotatingBloomFilter",
    "ShardedBloomFilter",
    "CountingBloomFilter",
)
"""The classes that own a header, by code; a filter of several parts has a header in its record."""
FILTER: Final = KINDS.index("BloomFilter")
COUNTING: Final = KINDS.index("CountingBloomFilter")
SCALING: Final = KINDS.index("ScalingBloomFilter")
ADOPTED: Final = 2
"""The value of `rules` in the record of a growing filter that was made by `adopt`.

Its first layer is the adopted filter, whose size follows no rule: the header has it.
"""
_OF_LAYERS: Final = {KINDS.index("ScalingBloomFilter"), KINDS.index("RotatingBloomFilter")}

_FORMAT: Final = struct.Struct(">6sBBBBBBB3xIIQd8sQQ")

ACKNOWLEDGED: Final = 1
"""Bit of `flags`: objects that have reported the loss of an older filter may go on with this one."""
DEFERRED: Final = 4
"""Bit of `flags`: the first write creates the bits; until then the string may be the header alone."""
BEING_MADE: Final = 8
"""Bit of `flags`: a shard that still has a time to live of its own, a minute."""
_FLAGS: Final = {FILTER: DEFERRED | BEING_MADE}
"""The flags that each kind can have besides `ACKNOWLEDGED`."""
_LATEST: Final = 253_402_300_799_999_999
"""The latest `created_at`: the end of the year 9999, as in a datetime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A filter's parameters, its generation (8 random bytes) and the count of items added.

    :ivar created_at: the server's time in microseconds since 1970.
    :ivar blocks_per_item: 0 in the classic layout, as is `block_bits`.
    :ivar kind: the class of the filter, which decides what follows the header.
    :ivar num_bits: the number of bits; the number of counters in a counting filter.
    :ivar rules: the version of the rules that size the layers; 0 for a filter without layers.
    :ivar flags: the bits above.
    :ivar encoding: the number of the encoding that items pass before they are hashed
        (`bits.encoding.number_of`).
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
    flags: int = 0
    encoding: int = 0

    def pack(self) -> bytes:
        """Return the 64 stored bytes."""
        return _FORMAT.pack(
            _MAGIC,
            _VERSION,
            _LAYOUT_CODES[self.layout, self.block_bits],
            self.num_hashes,
            self.blocks_per_item,
            self.kind,
            self.rules,
            self.flags,
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
        """The header without the count, which every script call carries and compares."""
        return self.pack()[:IDENTITY_BYTES]

    @property
    def size_bytes(self) -> int:
        """The length of the whole string: header and bits."""
        return HEADER_BYTES + (self.num_bits * cell_bits(self.kind) + 7) // 8

    def has_size(self, size: int) -> bool:
        """Return whether the whole string may have this length."""
        unwritten = self.flags & DEFERRED and not self.count
        return size == self.size_bytes or bool(unwritten and size == HEADER_BYTES)

    @property
    def is_acknowledged(self) -> bool:
        """True if objects that have reported the loss of an older filter may go on with this one."""
        return bool(self.flags & ACKNOWLEDGED)

    def succeeds(self, known: Header | None) -> bool:
        """Return whether this filter was made later than a lost one, and its loss was acknowledged."""
        return self.is_acknowledged and (known is None or self.created_at > known.created_at)

    @property
    def acknowledged(self) -> Header:
        """The header with that flag."""
        return replace(self, flags=self.flags | ACKNOWLEDGED)

    @property
    def parameters(self) -> Header:
        """The header without the fields that differ between two filters with the same parameters."""
        return replace(self, generation=bytes(8), created_at=0, count=0, flags=0)

    def as_new(self, generation: bytes, created_at: int) -> Header:
        """Return the header of another filter with the same bits, all of which are written."""
        return replace(self, flags=0, generation=generation, created_at=created_at)

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
    """Return the size of a cell in bits: four for a counter, one for a plain bit."""
    return COUNTER_BITS if kind == COUNTING else 1


def identified(identity: bytes) -> Header:
    """Return the header with this identity and a count of 0; bytes after the identity are ignored."""
    return parse(identity[:IDENTITY_BYTES] + bytes(HEADER_BYTES - IDENTITY_BYTES))


def differ_by_mark(first: bytes, second: bytes) -> bool:
    """Return whether two identities belong to one filter, which only one of them calls acknowledged.

    Identities without a header, of bitmaps and of layers, never do.
    """
    if len(first) != IDENTITY_BYTES or len(second) != IDENTITY_BYTES:
        return False
    differing = first[FLAGS_BYTE] ^ second[FLAGS_BYTE]
    rest = first[:FLAGS_BYTE] + first[FLAGS_BYTE + 1 :], second[:FLAGS_BYTE] + second[FLAGS_BYTE + 1 :]
    return differing == ACKNOWLEDGED and rest[0] == rest[1]


class OtherKindError(ValueError):
    """A header that belongs to another class."""

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(f"a {found}, not a {wanted}")
        self.found, self.wanted = found, wanted


def unusable(name: str, error: ValueError) -> FilterMismatchError:
    """Return the public error for bytes that `parse` refused."""
    if isinstance(error, OtherKindError):
        return FilterMismatchError(
            f"{name!r} is a {error.found}, not a {error.wanted}",
            advice=f"open it with {error.found}, or use another name",
            command="leave --kind out, or use another name",
        )
    return FilterMismatchError(
        f"{name!r} is no filter that this release can use: {error}",
        advice="update bloomredis if a later release wrote it, or use another name",
    )


def parse(data: bytes, kind: int = FILTER) -> Header:
    """Return a header of this kind; raise `ValueError`, which names the fault, for other bytes."""
    if len(data) != HEADER_BYTES:
        raise ValueError(f"a header has {HEADER_BYTES} bytes, not {len(data)}")
    magic, version, code, hashes, blocks, found, rules, flags, *numbers = _FORMAT.unpack(data)
    if magic != _MAGIC:
        raise ValueError(f"it begins with {magic!r}, not {_MAGIC!r}")
    if version != _VERSION:
        raise ValueError(f"it has format version {version}; this release reads version {_VERSION}")
    known_rules = (ADOPTED if found == SCALING else RULES) if {found, kind} & _OF_LAYERS else 0
    known_flags = ACKNOWLEDGED | _FLAGS.get(found, 0)
    is_known = rules <= known_rules and not flags & ~known_flags and not any(data[13:16])
    if code not in _LAYOUTS or found >= len(KINDS) or not is_known:
        raise ValueError(
            f"it has layout {code}, kind {found}, options {data[11:16].hex()}, unknown to this release"
        )
    if found != kind:
        raise OtherKindError(KINDS[found], KINDS[kind])
    names = ("encoding", "num_bits", "capacity", "error_rate", "generation", "created_at", "count")
    fields = dict(zip(names, numbers, strict=True))
    layout, block_bits = _LAYOUTS[code]
    parameters = {"num_hashes": hashes, "blocks_per_item": blocks, "block_bits": block_bits}
    head = Header(layout=layout, kind=kind, rules=rules, flags=flags, **parameters, **fields)
    if not head.is_possible:
        raise ValueError(
            f"its parameters make no filter: num_hashes {hashes}, num_bits {head.num_bits}, "
            f"capacity {head.capacity}, error_rate {head.error_rate}, blocks_per_item {blocks}, "
            f"created_at {head.created_at}"
        )
    return head
