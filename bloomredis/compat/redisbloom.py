"""The layout of RedisBloom filters, and the reader of the dumps in the replies of `BF.SCANDUMP`.

A RedisBloom filter is a chain of links, each with a bitmap of its own size; an item is present if any link
has all its bits.  RedisBloom counts the bits of a byte from the least significant one.  The reader puts them
into SETBIT's order: bit x of a link is at SETBIT offset x.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from bloomredis.bits.limits import MAX_HASHES
from bloomredis.compat.bitmap import Bitmap, reversed_bits
from bloomredis.compat.hashes import murmur2
from bloomredis.protocol.keys import auxiliary_prefix
from bloomredis.stored.module.header import CHAIN, LINK

NOROUND: Final = 1
ENTS_IS_BITS: Final = 2
FORCE64: Final = 4
NO_SCALING: Final = 8
"""Options of a chain: no rounding to a power of two; capacity is log2 of the bits; 64-bit hashes; no
further links."""

_LN2: Final = 0.693147180559945  # the digits of RedisBloom's source
_LN2_SQUARED: Final = 0.480453013918201
_MASK: Final = 2**64 - 1


@dataclass(frozen=True, kw_only=True)
class RedisBloom(Bitmap):
    """One link: probe i is (a + i b) modulo 2^`n2`, or modulo `num_bits` where `n2` is 0.

    a and b are MurmurHash64A (`hash_bits` 64), or MurmurHash2 in old filters (32); b is seeded with a.
    RedisBloom hashes bytes; a str is encoded as UTF-8, an int as decimal digits.
    """

    name = "redisbloom"

    n2: int = 0
    hash_bits: int = 64

    @property
    def modulus(self) -> int:
        """The modulus of the probes; at most `num_bits`, which is rounded up to a multiple of 64."""
        return 1 << self.n2 if self.n2 else self.num_bits

    def probes(self, encoded: bytes) -> list[int]:
        """Return the bits of an encoded item in probe order."""
        a, b = (murmur2.chained64 if self.hash_bits == 64 else murmur2.chained32)(encoded)
        modulus = self.modulus
        return [((a + i * b) & _MASK) % modulus for i in range(self.num_hashes)]


@dataclass(frozen=True, kw_only=True)
class RedisBloomChain(Bitmap):
    """Several links, newest first; `num_bits`, `num_hashes` and `capacity` are sums over all links.

    The offsets of an item are its offsets in each link, one link after another.
    """

    name = "redisbloom"

    layouts: tuple[RedisBloom, ...]

    def __post_init__(self) -> None:
        """Check nothing: each link has been checked, and has its own key."""

    def links(self, name: str) -> list[tuple[str, RedisBloom]]:
        """Return the keys and the layouts, newest first; the oldest link's key is the filter's name."""
        beginning = auxiliary_prefix(name.encode()).decode()
        older = len(self.layouts) - 1
        return [
            (f"{beginning}link:{older - i}" if i < older else name, layout)
            for i, layout in enumerate(self.layouts)
        ]

    def probes(self, encoded: bytes) -> list[int]:
        """Return the bits of an encoded item in all links."""
        return [offset for layout in self.layouts for offset in layout.probes(encoded)]


class Size(NamedTuple):
    """The size of a link as `bloom_init` computes it."""

    num_bits: int
    num_hashes: int
    n2: int
    entries: int
    error_rate: float


def link_size(capacity: int, error_rate: float, options: int = NOROUND | FORCE64) -> Size:
    """Return the size of a link as `bloom_init` computes it in doubles: m = n |ln p| / (ln 2)^2.

    Raises `ValueError` for parameters that RedisBloom refuses.
    """
    if capacity < 1 or not 0 < error_rate < 1:
        raise ValueError(f"RedisBloom has no link of capacity {capacity} at error_rate {error_rate}")
    per_entry = abs(math.log(error_rate) / _LN2_SQUARED)
    n2, entries = 0, capacity
    if options & ENTS_IS_BITS:
        n2 = capacity
        entries = int((1 << n2) / per_entry)
    elif not options & NOROUND:
        n2 = math.frexp(capacity * per_entry)[1]
        entries += int(int((1 << n2) - capacity * per_entry) / per_entry)
    if n2 > 63:
        raise ValueError(f"RedisBloom has no link of 2^{n2} bits, only up to 2^63")
    bits = 1 << n2 if n2 else max(1, int(capacity * per_entry))
    return Size(-(-bits // 64) * 64, math.ceil(_LN2 * per_entry), n2, entries, error_rate)


def first_link_size(capacity: int, error_rate: float, options: int = NOROUND | FORCE64) -> Size:
    """Return the size of the first link of `BF.RESERVE`: for half the error rate if links may follow."""
    return link_size(capacity, error_rate if options & NO_SCALING else error_rate * 0.5, options)


@dataclass(frozen=True, kw_only=True)
class Link:
    """One link of a chain: its layout, its bits as a Redis string, and its number of items."""

    layout: RedisBloom
    bits: bytes
    items: int


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A filter read from a dump: its links, oldest first, and the options for its next link."""

    links: tuple[Link, ...]
    items: int
    options: int
    growth: int

    @property
    def layout(self) -> RedisBloomChain:
        """The read-only layout of all links together."""
        layouts = tuple(link.layout for link in reversed(self.links))
        return RedisBloomChain(
            num_bits=sum(layout.num_bits for layout in layouts),
            num_hashes=sum(layout.num_hashes for layout in layouts),
            capacity=sum(layout.capacity for layout in layouts),
            error_rate=1 - math.prod(1 - layout.error_rate for layout in layouts),
            layouts=layouts,
        )


def read_redisbloom(chunks: Iterable[tuple[int, bytes]]) -> Chain:
    """Return the filter in the replies `(iterator, data)` of `BF.SCANDUMP`, given in their order.

    The reply that ends a dump, iterator 0, is optional.  Raises `ValueError` if the dump is incomplete or
    invalid, and for a link of more than 2^32 bits, which no Redis string can hold.
    """
    replies = [(iterator, data) for iterator, data in chunks if iterator]
    if not replies or replies[0][0] != 1:
        raise ValueError("a dump begins with the header, iterator 1: pass every reply of BF.SCANDUMP")
    size = 0
    for iterator, data in replies[1:]:
        size += len(data)
        if iterator != 1 + size:
            raise ValueError(f"the chunk with iterator {iterator} ends at byte {size}: one is missing or cut")
    return _chain(replies[0][1], b"".join(data for _, data in replies[1:]))


def _chain(head: bytes, data: bytes) -> Chain:
    if len(head) < CHAIN.size:
        raise ValueError(f"the header of a dump has at least {CHAIN.size} bytes, not {len(head)}")
    items, count, options, growth = CHAIN.unpack_from(head)
    if not count or len(head) != CHAIN.size + count * LINK.size:
        raise ValueError(f"the header of a dump with {count} links does not have {len(head)} bytes")
    if options & ~(NOROUND | ENTS_IS_BITS | FORCE64 | NO_SCALING):
        raise ValueError(f"the dump has options {options:#x}; some of them are unknown")
    links, start = [], 0
    for fields in LINK.iter_unpack(head[CHAIN.size :]):
        links.append(_link(fields, options, data[start : start + fields[0]]))
        start += fields[0]
    if start != len(data) or items != sum(link.items for link in links):
        raise ValueError(f"the header names {start} bytes and {items} items; the dump has {len(data)} bytes")
    return Chain(links=tuple(links), items=items, options=options, growth=growth)


def _link(fields: tuple[int, int, int, float, float, int, int, int], options: int, data: bytes) -> Link:
    size, bits, items, error_rate, _, hashes, entries, n2 = fields
    fits = bits == 8 * size and len(data) == size and n2 <= 63 and bits >= (1 << n2)
    if not fits or not 0 < error_rate < 1 or not 0 < hashes <= MAX_HASHES:
        raise ValueError(
            f"a link of {bits} bits, {hashes} hashes, n2 {n2}, error rate {error_rate}, in {len(data)} of "
            f"{size} bytes: not a dump of RedisBloom"
        )
    layout = RedisBloom(
        num_bits=bits,
        num_hashes=hashes,
        capacity=entries,
        error_rate=error_rate,
        n2=n2,
        hash_bits=64 if options & FORCE64 else 32,
    )
    return Link(layout=layout, bits=reversed_bits(data), items=items)
