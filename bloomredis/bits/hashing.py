"""The 128-bit hash of an item, and the probes of the classic layout that are computed from it.

An item's bytes are hashed with MurmurHash3 x64 128 (seed 0), read as two little-endian 64-bit
numbers h1 and h2.  Probe i is *enhanced double hashing* (Dillinger & Manolios, "Bloom filters in
probabilistic verification", 2004):

    x = h1 mod m,  y = h2 mod m,  probe_i = (x + i*y + (i^3 - i) / 6) mod m,  i = 0 .. k-1

Plain double hashing (without the cubic term) has a fifth more false positives in small filters.  One
item is computed in plain Python, a batch with numpy; a property test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from mmh3 import hash_bytes
from numpy.typing import NDArray


def digests(items: Sequence[str | bytes]) -> bytes:
    """Return the MurmurHash3 digests of all items, 16 bytes each, concatenated."""
    return b"".join(map(hash_bytes, items))


@lru_cache(maxsize=256)
def _cubic(hashes: int) -> tuple[int, ...]:
    return tuple((i**3 - i) // 6 for i in range(hashes))


def probes(hashed: bytes, bits: int, hashes: int) -> list[int]:
    """Return the `hashes` offsets below `bits` of a 16-byte digest, in probe order."""
    x = int.from_bytes(hashed[:8], "little") % bits
    y = int.from_bytes(hashed[8:], "little") % bits
    return [(x + i * y + cubic) % bits for i, cubic in enumerate(_cubic(hashes))]


def probe_rows(hashed: bytes, bits: int, hashes: int) -> NDArray[np.uint32]:
    """Return the probes of many digests: one row a probe, one column an item.

    Each probe is computed from the one before without division or multiplication: x += y, then y += i,
    both modulo m, give the cubic formula above.
    """
    dtype = np.uint32 if bits <= 2**31 else np.uint64  # so that a sum of two numbers below m fits
    m = dtype(bits)
    y, x = (np.frombuffer(hashed, dtype="<u8").reshape(-1, 2).T[::-1] % np.uint64(bits)).astype(dtype)
    rows = np.empty((hashes, len(x)), dtype)
    rows[0] = x
    wrapped = np.empty_like(x)
    for i in range(1, hashes):
        x = np.add(rows[i - 1], y, out=rows[i])
        # x modulo m: where x < m, the unsigned x - m wraps around and is the larger of the two.
        np.minimum(x, np.subtract(x, m, out=wrapped), out=x)
        y += dtype(i % bits)
        np.minimum(y, np.subtract(y, m, out=wrapped), out=y)
    return rows.astype(np.uint32, copy=False)
