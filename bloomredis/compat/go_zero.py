"""The layout of go-zero's `core/bloom`.

Go services with https://github.com/zeromicro/go-zero create this filter by `bloom.New(store, key, bits)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, SupportsIndex

from mmh3 import hash64

from bloomredis.bits import sizing
from bloomredis.compat.bitmap import Bitmap, half_full
from bloomredis.compat.hashes.longs import remainders
from bloomredis.later import later

if TYPE_CHECKING:
    from bloomredis.compat.hashes import murmur3
else:
    murmur3 = later("bloomredis.compat.hashes", "murmur3")  # its constants are arrays of numpy

PROBES: Final = 14
_SUFFIXES: Final = tuple(bytes([i]) for i in range(PROBES))
_BLOCK: Final = 1024  # items; their 14 hashes each stay in the processor's cache


class GoZero(Bitmap):
    """Probe i is the first half of MurmurHash3 x64 128 of the item followed by byte i, modulo `num_bits`.

    The hash is unsigned, and not masked as in the Java systems.  In Go an item is bytes; here a str is
    encoded as UTF-8.  A str that UTF-8 cannot encode raises `ValueError`.
    """

    name = "go_zero"

    def probes(self, encoded: bytes) -> list[int]:
        """Return the bits of an encoded item in probe order."""
        bits = self.num_bits
        return [hash64(encoded + suffix, signed=False)[0] % bits for suffix in _SUFFIXES]

    def pack(self, items: Sequence[str | bytes]) -> bytes:
        """Return the offsets of encoded items as little-endian u32, item after item.

        An item longer than 512 bytes makes its block of the batch some ten times slower.
        """
        return b"".join(
            self._pack_block(items[start : start + _BLOCK]) for start in range(0, len(items), _BLOCK)
        )

    def _pack_block(self, items: Sequence[str | bytes]) -> bytes:
        rows = murmur3.suffixed(items, PROBES)
        if rows is None:
            return super().pack(items)
        return remainders(rows, self.num_bits).T.astype("<u4", order="C").tobytes()


def go_zero(bits: SupportsIndex) -> GoZero:
    """Return the layout of go-zero's filter of `bits` bits, with 14 probes an item for every size.

    go-zero takes no capacity.  The layout's `capacity` is the best for 14 probes, the number of items that
    set half the bits; its `error_rate` is 2^-14.  Raises `ValueError` for less than 1 or more than 2^32 bits;
    go-zero itself fails at its first SETBIT.
    """
    num_bits = sizing.positive("bits", bits)
    capacity, error_rate = half_full(num_bits, PROBES)
    return GoZero(num_bits=num_bits, num_hashes=PROBES, capacity=capacity, error_rate=error_rate)
