"""Saved filters in this process: answers from a file that is mapped into memory."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from bloomredis.bits.batch import Encoded
from bloomredis.bits.bitmap import Bits
from bloomredis.bits.classic import Classic
from bloomredis.operations import info
from bloomredis.operations.files import Reader
from bloomredis.protocol.keys import as_bytes
from bloomredis.stored import encoding, mergeable, planning
from bloomredis.stored.handle import Description
from bloomredis.stored.header import COUNTING, Header
from bloomredis.stored.layer_record import LayerRecord
from bloomredis.stored.saved import Saved
from bloomredis.stored.shard_record import ShardRecord

if TYPE_CHECKING:
    from bloomredis.operations.snapshot import Answers


_PIECE_BYTES: Final = 1 << 20
"""Bytes of counters that are turned into bits at a time; a multiple of 4, so that they fill whole bytes."""


@dataclass(frozen=True)
class AnyOf:
    """Layers: an item is in the filter if it is in any."""

    layers: Sequence[Bits]

    def has(self, encoded: bytes) -> bool:
        """Return True if an item is in any layer."""
        return any(layer.has(encoded) for layer in self.layers)

    def has_many(self, encoded: Encoded) -> NDArray[np.bool_]:
        """Return the answer for each item."""
        present = np.zeros(len(encoded), dtype=np.bool_)
        for layer in self.layers:
            present |= layer.has_many(encoded)
        return present


@dataclass(frozen=True)
class OneOf:
    """Shards: an item is in the one that its hash picks; one that was never made has none."""

    record: ShardRecord
    shards: dict[int, Bits]

    def has(self, encoded: bytes) -> bool:
        """Return True if an item is in its shard."""
        shard = self.shards.get(self.record.number(as_bytes(encoded)))
        return shard is not None and shard.has(encoded)

    def has_many(self, encoded: Encoded) -> NDArray[np.bool_]:
        """Return the answer for each item."""
        present = np.zeros(len(encoded), dtype=np.bool_)
        for number, own in self.record.parted(encoded).items() if encoded else ():
            if number in self.shards:
                present[own] = self.shards[number].has_many([encoded[i] for i in own])
        return present


@dataclass(frozen=True)
class Opened:
    """A file that is open: its answers, and the description of what it has."""

    answers: Answers
    about: info.Parts


def opened(path: str | os.PathLike[str], encoded: int | None, *, verify: bool) -> Opened:
    """Map a file of a filter with that encoding into memory; `ValueError` if it is no saved filter."""
    with Path(path).open("rb") as file:
        saved = Reader(file, verify=verify).saved
        size = os.fstat(file.fileno()).st_size
        if size != saved.num_bytes:
            raise ValueError(f"{os.fspath(path)!r} has {size} bytes and should have {saved.num_bytes}")
        encoding.check(os.fspath(path), mergeable.whole(saved).encoding, encoded)
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    parts = list(_parts(saved, data))
    record: Any = saved.parsed
    about = info.Parts(parts, record, saved.ttl)
    if isinstance(record, LayerRecord):
        return Opened(AnyOf([bits for _, bits in parts]), about)
    if record is not None:
        numbers = (part.number for part in saved.parts)
        shards = {number: bits for number, (_, bits) in zip(numbers, parts, strict=True)}
        return Opened(OneOf(record[0], shards), about)
    return Opened(parts[0][1], about)


def _parts(saved: Saved, data: memoryview) -> Iterator[tuple[Description, Bits]]:
    ttl = saved.ttl / 1000 or None
    for part, first in saved.first_bytes():
        described = Description(b"", part.header, part.header.size_bytes, 0, ttl)
        yield described, _bits(part.header, data[first : first + part.num_bytes])


def _bits(head: Header, data: memoryview) -> Bits:
    if head.kind != COUNTING:
        return Bits(planning.stored(head), data)
    bits = bytearray()
    for start in range(0, len(data), _PIECE_BYTES):
        pairs = np.frombuffer(data[start : start + _PIECE_BYTES], dtype=np.uint8)
        some = np.empty(2 * len(pairs), dtype=np.bool_)  # the even counter is the upper half
        some[0::2], some[1::2] = pairs & 0xF0, pairs & 0x0F
        bits += np.packbits(some).tobytes()
    return Bits(Classic(num_bits=head.num_bits, num_hashes=head.num_hashes), bits)
