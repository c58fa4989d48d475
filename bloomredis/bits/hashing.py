"""The 128-bit hash of an item, and the probes of the classic layout.

An item's bytes are hashed with MurmurHash3 x64 128 (seed 0), read as two little-endian 64-bit
numbers h1 and h2.  Probe i is *enhanced double hashing* (Dillinger & Manolios, "Bloom filters in
probabilistic verification", 2004):

    x = h1 mod m,  y = h2 mod m,  probe_i = (x + i*y + (i^3 - i) / 6) mod m,  i = 0 .. k-1

Plain double hashing, without the cubic term, has a fifth more false positives in small filters.  Python
computes the probes of one item, numpy those of a batch; a property test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Self, overload

from mmh3 import hash_bytes

from bloomredis.bits.arrays import NDArray, np

DIGEST_BYTES: Final = 16
HASHED_AT_ONCE: Final = 8192
"""The number of items to hash together; the temporaries of more items outgrow the processor's cache."""


class Picks(NamedTuple):
    """The positions of a batch of items in blocks, and the words that give the blocks.

    :ivar words: the words, for each region.
    :ivar positions: the distinct positions, by region, bit and item.
    """

    words: Sequence[NDArray[np.uint32]]
    positions: NDArray[np.uint8]
    block_bits: int

    def first(self, regions: int, bits: int) -> Picks:
        """Return the picks of a layout with fewer regions or bits: it uses the first ones."""
        return Picks(self.words[:regions], self.positions[:regions, :bits], self.block_bits)

    def take(self, items: NDArray[np.intp]) -> Picks:
        """Return the picks of the items at these indexes."""
        words = [each.take(items) for each in self.words]
        return Picks(words, self.positions.take(items, axis=2), self.block_bits)


class Digests(Sequence[bytes]):
    """The digests of items; functions that hash items accept them in place of the items.

    :ivar picks: the items' positions in blocks, once a layout has computed them; other layouts use them too.
    """

    __slots__ = ("_rows", "picks")

    def __init__(self, rows: NDArray[np.uint8], picks: Picks | None = None) -> None:
        self._rows = rows  # one row a digest
        self.picks = picks

    @classmethod
    def of(cls, items: Sequence[str | bytes]) -> Self:
        """Return the digests of items, which may be `Digests` already."""
        return cls(np.frombuffer(digests(items), np.uint8).reshape(-1, DIGEST_BYTES))

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> bytes | Self:
        rows = self._rows[index]
        return type(self)(rows) if isinstance(index, slice) else rows.tobytes()

    def take(self, items: NDArray[np.intp]) -> Self:
        """Return the digests at these ascending indexes."""
        if len(items) == len(self):
            return self
        return type(self)(self._rows.take(items, axis=0), self.picks and self.picks.take(items))

    @property
    def joined(self) -> memoryview:
        """All digests, concatenated."""
        return np.ascontiguousarray(self._rows).reshape(-1).data


def digests(items: Sequence[str | bytes]) -> bytes | memoryview:
    """Return the MurmurHash3 digests of all items, 16 bytes each, concatenated."""
    if isinstance(items, Digests):
        return items.joined
    if len(items) <= HASHED_AT_ONCE:
        return b"".join(map(hash_bytes, items))
    return b"".join([digests(items[at : at + HASHED_AT_ONCE]) for at in range(0, len(items), HASHED_AT_ONCE)])


@lru_cache(maxsize=256)
def _cubic(hashes: int) -> tuple[int, ...]:
    return tuple((i**3 - i) // 6 for i in range(hashes))


def probes(hashed: bytes, bits: int, hashes: int) -> list[int]:
    """Return the `hashes` offsets below `bits` of a 16-byte digest, in probe order."""
    x = int.from_bytes(hashed[:8], "little") % bits
    y = int.from_bytes(hashed[8:], "little") % bits
    return [(x + i * y + cubic) % bits for i, cubic in enumerate(_cubic(hashes))]


def probe_rows(hashed: bytes | memoryview, bits: int, hashes: int) -> NDArray[np.uint32]:
    """Return the probes of many digests: one row a probe, one column an item.

    Each probe follows from the previous probe without division or multiplication: x += y, then y += i, both
    modulo m, give the cubic formula above.
    """
    dtype = np.uint32 if bits <= 2**31 else np.uint64  # a sum of two numbers below m must fit
    m = dtype(bits)
    y, x = (np.frombuffer(hashed, dtype="<u8").reshape(-1, 2).T[::-1] % np.uint64(bits)).astype(dtype)
    rows = np.empty((hashes, len(x)), dtype)
    rows[0] = x
    wrapped = np.empty_like(x)
    for i in range(1, hashes):
        x = np.add(rows[i - 1], y, out=rows[i])
        # This is x modulo m: if x < m, the unsigned x - m wraps around and is the larger of the two.
        np.minimum(x, np.subtract(x, m, out=wrapped), out=x)
        y += dtype(i % bits)
        np.minimum(y, np.subtract(y, m, out=wrapped), out=y)
    return rows.astype(np.uint32, copy=False)
