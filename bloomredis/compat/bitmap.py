"""The base class of the layouts of other systems, each a bitmap without a header.

Such a bitmap does not store its parameters, so the caller gives them.  Two layouts that set the same bits are
equal, whatever capacity and time to live they were made for.
"""

from __future__ import annotations

import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, cast

from bloomredis import arguments
from bloomredis.bits import encoding
from bloomredis.bits.arrays import np
from bloomredis.bits.batch import ScatteredBits
from bloomredis.bits.encoding import Item

MAX_BITMAP_BITS: Final = 2**32
"""Bits of the longest Redis string, 512 MiB."""
MAX_HASHES: Final = 255
"""Most probes for an item; the scripts take their number as one byte."""

_REVERSED: Final = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def reversed_bits(data: bytes) -> bytes:
    """Return `data` with the bits of each byte reversed, from LSB first to SETBIT's MSB first."""
    return data.translate(_REVERSED)


def half_full(num_bits: int, num_hashes: int) -> tuple[int, float]:
    """Return the best capacity of a bitmap, which sets half of its bits, and the error rate at that capacity.

    n = (m / k) ln 2 and p = 2^-k (Broder & Mitzenmacher, "Network applications of Bloom filters", 2004).
    """
    return max(1, round(num_bits / num_hashes * math.log(2))), 2.0**-num_hashes


def encode_all(items: Sequence[Item], encode: Callable[[Item], bytes]) -> Sequence[str | bytes]:
    """Return the encoded items; bytes and ASCII strings are returned as they are."""
    types = set(map(type, items))
    if types == {bytes} or (types == {str} and "".join(cast("Sequence[str]", items)).isascii()):
        return cast("Sequence[str | bytes]", items)
    return [encode(item) for item in items]


@dataclass(frozen=True, kw_only=True)
class Bitmap(ABC):
    """A layout of another system: an item sets `num_hashes` of the `num_bits` bits of one Redis string.

    Raises `ValueError` for sizes that a Redis string or a script cannot hold.
    """

    num_bits: int
    num_hashes: int
    capacity: int = field(compare=False)
    """Items that the filter is made for."""
    error_rate: float = field(compare=False)
    """The configured false-positive rate at that many items."""

    name = "bitmap"  # each system has its own; a ClassVar would not match the property of `Layout`

    def __post_init__(self) -> None:
        if not 1 <= self.num_bits <= self.max_bits():
            raise ValueError(
                f"{self.name} filter of {self.num_bits} bits: it must have at least 1 and at most "
                f"{self.max_bits()} bits; change the parameters that its size is computed from"
            )
        if not 1 <= self.num_hashes <= MAX_HASHES:
            raise ValueError(
                f"{self.name} filter with {self.num_hashes} hashes: it must have at least 1 and at most "
                f"{MAX_HASHES} hashes; change the error_rate"
            )

    def max_bits(self) -> int:
        """Return the largest number of bits that a filter may have."""
        return MAX_BITMAP_BITS

    @property
    def item_bytes(self) -> int:
        """The size of a packed item: four bytes a probe."""
        return 4 * self.num_hashes

    @property
    def cost(self) -> float:
        """The server time for setting an item, in probes."""
        return self.num_hashes

    def key(self, name: str) -> str:
        """Return the key of a filter with this name: the name itself."""
        return name

    def encode(self, item: Item) -> bytes:
        """Return the bytes that are hashed for `item`: UTF-8 of a str, decimal digits of an int.

        Raises `TypeError` for every other type, and `ValueError` for a str that UTF-8 cannot encode.
        """
        return encoding.encode(item)

    def encode_all(self, items: Sequence[Item]) -> Sequence[str | bytes]:
        """Return the encoded items of a batch, in a form that `pack` takes."""
        return encode_all(items, self.encode)

    @abstractmethod
    def probes(self, encoded: bytes) -> list[int]:
        """Return the bits of an encoded item in probe order, repeats kept, each below `num_bits`."""

    def offsets(self, item: Item) -> list[int]:
        """Return the item's SETBIT offsets in probe order, repeats kept, each below `num_bits`."""
        return self.probes(self.encode(item))

    def hashed(self, items: Sequence[str | bytes]) -> ScatteredBits:
        """Return the bits of a batch of encoded items."""
        offsets = np.frombuffer(self.pack(items), dtype="<u4").reshape(-1, self.num_hashes)
        return ScatteredBits(offsets.T.astype(np.uint32, order="C"))

    def pack_one(self, item: bytes) -> bytes:
        """Return the offsets of one encoded item as little-endian u32."""
        return struct.pack(f"<{self.num_hashes}I", *self.probes(item))

    def pack(self, items: Sequence[str | bytes]) -> bytes:
        """Return the offsets of encoded items as little-endian u32, item after item."""
        return b"".join([self.pack_one(item.encode() if isinstance(item, str) else item) for item in items])


@dataclass(frozen=True, kw_only=True)
class ExpiringBitmap(Bitmap):
    """A layout of a system that sets the key's time to live at each insert.

    Raises `TypeError` or `ValueError` for a bad `insert_ttl`.
    """

    insert_ttl: float | timedelta | None = field(default=None, compare=False)
    """Seconds (or a timedelta) until the key expires, from the last insert on; None renews nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.insert_ttl is not None:
            arguments.milliseconds("insert_ttl", self.insert_ttl)
