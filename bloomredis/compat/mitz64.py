"""Layouts with Guava's MITZ_64 arithmetic, which several Java systems share."""

from __future__ import annotations

from collections.abc import Sequence

from mmh3 import hash64

from bloomredis.compat.bitmap import Bitmap
from bloomredis.compat.hashes.longs import mitz64, murmurs, packed_probes, probes


class Mitz64(Bitmap):
    """A layout with Guava's MITZ_64 arithmetic: MurmurHash3, h1 + i h2, the sign masked."""

    def probes(self, encoded: bytes) -> list[int]:
        """Return the bits of an encoded item in probe order."""
        h1, h2 = hash64(encoded, signed=False)
        return probes(h1, h2, mitz64(self.num_hashes), self.num_bits)

    def pack(self, items: Sequence[str | bytes]) -> bytes:
        """Return the offsets of encoded items as little-endian u32, item after item."""
        return packed_probes(murmurs(items), mitz64(self.num_hashes), self.num_bits)
