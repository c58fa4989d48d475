"""The layout of Redisson's `RBloomFilter`, and its config hash.

Redisson keeps the bits at the filter's name and the parameters in a separate hash.  Each of its scripts
compares `size` and `hashIterations` of that hash with the client's values, and so does each of ours.  If the
hash is missing, as after Redisson's `delete()`, our script writes it again before the first bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, SupportsIndex

from bloomredis.bits import sizing
from bloomredis.bits.encoding import Item
from bloomredis.compat.bitmap import Bitmap
from bloomredis.compat.hashes import highwayhash, java, longs

_KEY: Final = (0x9E3779B97F4A7C15, 0xF39CC0605CEDC834, 0x1082276BF3A27251, 0xF86C6A11D0C18E95)
_MAX_SIZE: Final = 2 * java.MAX_INT


@lru_cache(maxsize=256)
def _steps(hashes: int) -> longs.Steps:
    # The walk starts at h1 and adds h2 and h1 alternately.
    return tuple((1 + i // 2, (i + 1) // 2, 0) for i in range(hashes))


@dataclass(frozen=True, kw_only=True)
class Redisson(Bitmap):
    """A filter of Redisson on HighwayHash-128: probes h1, h1 + h2, 2 h1 + h2, 2 h1 + 2 h2, ...

    Each is masked to 63 bits and taken modulo `num_bits`.  The walk has few independent steps, so the real
    false-positive rate at `capacity` is 1.1 to 3.6 times the configured `error_rate`.  The factor grows as
    the rate falls.  This is a property of the format, and the same in Java.

    Items are encoded as by Redisson's codecs: a str as `StringCodec`, with a question mark for an unpaired
    surrogate; bytes as `ByteArrayCodec`; an int as `LongCodec`, in decimal digits.  Redisson's default codec
    is a different one, so the Java side has to set one of these.
    """

    name = "redisson"

    def encode(self, item: Item) -> bytes:
        """Return the bytes that are hashed for `item`.  Raises `TypeError` for all but str, bytes and int."""
        return java.utf8(item)

    def probes(self, encoded: bytes) -> list[int]:
        """Return the bits of an encoded item in probe order."""
        h1, h2 = highwayhash.hash128(encoded, _KEY)
        return longs.probes(h1, h2, _steps(self.num_hashes), self.num_bits)

    def pack(self, items: Sequence[str | bytes]) -> bytes:
        """Return the offsets of encoded items as little-endian u32, item after item."""
        encoded = [item.encode() if isinstance(item, str) else item for item in items]
        hashes = highwayhash.hashes128(encoded, _KEY)
        return longs.packed_probes(hashes, _steps(self.num_hashes), self.num_bits)

    def config_key(self, name: str) -> str:
        """Return the key of the config hash; a name with braces keeps its own hash tag."""
        return f"{name}:config" if "{" in name else f"{{{name}}}:config"

    def config(self) -> dict[str, str]:
        """Return the fields of the config hash as `tryInit` writes them, in its order.

        Only the first two are ever compared.  The rate is written as by Java's `Double.toString`; old
        versions of Redisson write it without an exponent.
        """
        return {
            "size": str(self.num_bits),
            "hashIterations": str(self.num_hashes),
            "expectedInsertions": str(self.capacity),
            "falseProbability": java.double_text(self.error_rate),
        }


def num_bits(capacity: int, error_rate: float) -> int:
    """Return the number of bits: (long) (-n ln p / (ln 2)^2).

    Raises `ValueError` for sizes that Redisson refuses: no bit, or more than 2 (2^31 - 1).
    """
    bits = java.to_long(java.bits_needed(capacity, error_rate))
    if bits == 0:
        raise ValueError(f"capacity {capacity} at error_rate {error_rate} gives a size of 0; lower the rate")
    if bits > _MAX_SIZE:
        raise ValueError(
            f"capacity {capacity} at error_rate {error_rate} needs {bits} bits, but Redisson has at "
            f"most {_MAX_SIZE}; lower the capacity or allow a higher error_rate"
        )
    return bits


def num_hashes(capacity: int, bits: int) -> int:
    """Return the number of hashes: max(1, round(m / n ln 2))."""
    return java.hashes_needed(capacity, bits)


def redisson(capacity: SupportsIndex, error_rate: float) -> Redisson:
    """Return the layout of a filter after `tryInit(capacity, error_rate)`.

    The real false-positive rate is 1.1 to 3.6 times `error_rate`: see `Redisson`.  Raises `ValueError` for
    an error rate outside (0, 1), and for sizes that Redisson refuses: no bit, or more than 2 (2^31 - 1).
    """
    count = sizing.checked_capacity(capacity)
    rate = sizing.checked_error_rate(error_rate)
    bits = num_bits(count, rate)
    return Redisson(num_bits=bits, num_hashes=num_hashes(count, bits), capacity=count, error_rate=rate)
