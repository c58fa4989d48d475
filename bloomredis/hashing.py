"""Which 128 bits stand for an item, and which probes follow from them.

An item's bytes are hashed with MurmurHash3 x64 128 (seed 0), read as two little-endian 64-bit
numbers h1 and h2.  Probe i is *enhanced double hashing* (Dillinger & Manolios, "Bloom filters in
probabilistic verification", 2004):

    x = h1 mod m,  y = h2 mod m,  probe_i = (x + i*y + (i^3 - i) / 6) mod m,  i = 0 .. k-1

Plain double hashing (without the cubic term) errs a fifth more often in small filters.  One item
is computed in plain Python, a batch with numpy; a property test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol, cast

import numpy as np
from mmh3 import hash_bytes
from numpy.typing import NDArray

Item = str | bytes | bytearray | memoryview | int


class Encoder(Protocol):
    """What turns a caller's items into what is hashed: this module itself, or another system's way."""

    def encode(self, item: Item) -> bytes:
        """Return the bytes that stand for an item, or raise for what is none."""

    def encode_all(self, items: Sequence[Item]) -> Sequence[str | bytes]:
        """Return what stands for each item in a batch, or raise for what is none."""


def encode(item: Item) -> bytes:
    """Return the bytes that stand for `item`: UTF-8 of a str, decimal text of an int.

    Raises `TypeError` for every other type, and `ValueError` for a str that UTF-8 cannot encode.
    """
    if isinstance(item, str):
        try:
            return item.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"item {item!r} is no valid Unicode ({error.reason}); pass bytes, or give the filter encode="
            ) from None
    if isinstance(item, bytes | bytearray | memoryview):
        return bytes(item)
    if isinstance(item, int) and not isinstance(item, bool):
        return b"%d" % item
    raise TypeError(
        f"an item is str, bytes or int, not {type(item).__name__}; convert it, or give the filter encode="
    )


def encode_all(items: Sequence[Item]) -> Sequence[str | bytes]:
    """Return `items` in a form that `digests` takes; raises as `encode` does.

    Bytes and ASCII strings stay as they are, which is several times faster.  Other strings must not
    reach mmh3: 5.3 crashes the process on an unpaired surrogate.
    """
    try:
        plain = "".join(cast("Sequence[str]", items)).isascii()
    except TypeError:
        types = set(map(type, items))
        plain = types == {bytes}
        if types == {int}:
            return list(map(str, items))
    return cast("Sequence[str | bytes]", items) if plain else [encode(item) for item in items]


def digests(items: Sequence[str | bytes]) -> bytes:
    """Return MurmurHash3 of all `items`, 16 bytes each, one after another."""
    return b"".join(map(hash_bytes, items))


@lru_cache(maxsize=256)
def _cubic(hashes: int) -> tuple[int, ...]:
    return tuple((i**3 - i) // 6 for i in range(hashes))


def probes(hashed: bytes, bits: int, hashes: int) -> list[int]:
    """Return the `hashes` offsets below `bits` that a 16-byte digest stands for, in probe order."""
    x = int.from_bytes(hashed[:8], "little") % bits
    y = int.from_bytes(hashed[8:], "little") % bits
    return [(x + i * y + cubic) % bits for i, cubic in enumerate(_cubic(hashes))]


def probe_rows(hashed: bytes, bits: int, hashes: int) -> NDArray[np.uint32]:
    """Return `probes` of many digests at once: one row a probe, one column an item.

    Each probe follows from the one before, so that nothing is divided or multiplied: x += y and then
    y += i, both modulo m, give the cubic formula above.
    """
    dtype = np.uint32 if bits <= 2**31 else np.uint64  # a sum of two numbers below m fits
    m = dtype(bits)
    y, x = (np.frombuffer(hashed, dtype="<u8").reshape(-1, 2).T[::-1] % np.uint64(bits)).astype(dtype)
    rows = np.empty((hashes, len(x)), dtype)
    rows[0] = x
    wrapped = np.empty_like(x)
    for i in range(1, hashes):
        x = np.add(rows[i - 1], y, out=rows[i])
        # Where x < m, x - m wraps around and is the larger one.
        np.minimum(x, np.subtract(x, m, out=wrapped), out=x)
        y += dtype(i % bits)
        np.minimum(y, np.subtract(y, m, out=wrapped), out=y)
    return rows.astype(np.uint32, copy=False)
