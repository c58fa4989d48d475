"""A copy of a filter's bits in this process, which answers without the server.

Bits are only ever set, so a True is right as long as the filter's generation stands, however old the copy
is; a False may be out of date.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, Protocol, Self, cast

import numpy as np
from numpy.typing import NDArray

from bloomredis.arguments import listed, shown
from bloomredis.bits.batch import Encoded
from bloomredis.bits.bitmap import Bits
from bloomredis.bits.classic import Classic
from bloomredis.bits.encoding import Encoder, number_of
from bloomredis.errors import FilterMismatchError
from bloomredis.operations.codec import Codec
from bloomredis.operations.options import I
from bloomredis.operations.whole import info
from bloomredis.operations.whole.files import Reader
from bloomredis.operations.whole.info import FilterInfo
from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.pieces import PIECE_BYTES, READ
from bloomredis.protocol.steps import Op
from bloomredis.stored import encoding, planning
from bloomredis.stored.header import COUNTING, Header
from bloomredis.stored.layers.record import LayerRecord
from bloomredis.stored.saved import mergeable
from bloomredis.stored.saved.format import Saved
from bloomredis.stored.shards.record import ShardRecord
from bloomredis.stored.state.base import Stored
from bloomredis.stored.state.handle import Description, LayoutChanged


class Answers(Protocol):
    """Bits that answer for encoded items: of one filter, of layers, or of shards."""

    def has(self, encoded: bytes) -> bool:
        """Return True if an item is in the filter."""

    def has_many(self, encoded: Encoded) -> NDArray[np.bool_]:
        """Return the answer for each item, as an array."""


class LocalFilter(Generic[I]):
    """A read-only copy of a filter, as it was when `snapshot()` read it, or when it was saved.

    It takes as much memory as the filter's bits, or none but the pages that are asked of an open file, and
    never asks the server.  A True was right while the filter stood; a False may be out of date.
    """

    def __init__(self, name: str, answers: Answers, about: info.Parts, encoder: Encoder) -> None:
        self.name = name
        self._answers = answers
        self.about = about  # not part of the public class, like `answers`
        self._encoder: Any = encoder  # of the items that the filter has

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        encode: Callable[[I], bytes] | None = None,
        verify: bool = True,
    ) -> Self:
        """Return the filter of a file that `save` wrote; no server is needed, nor memory for the bits.

        The file is mapped into memory, which processes share.  Leave it unchanged while it is open: a process
        whose mapped file is cut is ended by SIGBUS.  Of a
        filter that counts, a bit for each counter is kept in memory, a quarter of the file.

        :param encode: as in the constructor; it has to be that of the filter that was saved.
        :param verify: read the whole file and check it, at some 1 GB a second; without, only its beginning.
        :raises ValueError: it is no saved filter, or was cut or changed.
        :raises FilterMismatchError: it was made with another `encode`.
        """
        opened = _opened(path, number_of(encode), verify=verify)
        return cls(os.fspath(path), opened.answers, opened.about, cast("Encoder", Codec(encode, None)))

    @property
    def bits(self) -> bytes:
        """The filter's bits as the server had them, without the header.

        :raises TypeError: it is in layers or shards, or it counts.
        """
        if not isinstance(self._answers, Bits) or self.about.is_counting:
            raise TypeError(f"{self.name!r} has not one string of bits")
        return bytes(self._answers.bytes)

    def contains(self, item: I) -> bool:
        """Return whether an item was in the filter."""
        return self._answers.has(self._encoder.encode(item))

    def __contains__(self, item: I) -> bool:
        return self.contains(item)

    def contains_many(self, items: Iterable[I]) -> list[bool]:
        """Return for each item, in order, whether it was in the filter."""
        answers: list[bool] = self._answers.has_many(self._encoder.encode_all(listed(items))).tolist()
        return answers

    def info(self) -> FilterInfo:
        """Return the filter's parameters and how full it is."""
        return self.about.info(self.name)

    def merge(self, other: LocalFilter[I]) -> None:
        """Add what another copy has: filters that were built apart become one.

        Both are of `BloomFilter`, with the same parameters; the bits are in memory afterwards, also those of
        an open file.  The count is an estimate from then on.

        :raises FilterMismatchError: their parameters differ.
        :raises TypeError: one is no copy of a `BloomFilter`.
        """
        if not isinstance(other, LocalFilter):
            raise TypeError(f"other must be a LocalFilter, not {type(other).__name__} {shown(other)}")
        if not (isinstance(self._answers, Bits) and isinstance(other._answers, Bits)):
            raise TypeError(
                f"{self.name!r} and {other.name!r} cannot be merged here, being in layers or in shards: "
                "restore them, and merge what can be merged on the server"
            )
        ((found, _),), ((theirs, _),) = self.about.parts, other.about.parts
        if found.header.generation and theirs.header.generation:
            mergeable.check(self.name, self.about.saved, other.name, other.about.saved)
        elif self._answers.layout != other._answers.layout:
            raise FilterMismatchError(f"{self.name!r} and {other.name!r} have different layouts")
        bits = Bits(self._answers.layout, bytearray(self._answers.bytes))
        bits.unite(0, other._answers.bytes)
        self._answers, self.about = bits, info.Parts([(info.united(found, theirs, bits), bits)])

    def __repr__(self) -> str:
        return f"<LocalFilter of {self.name!r}: {self.about.size_bytes} bytes>"


def snapshot(stored: Stored, encoder: Encoder) -> Op[LocalFilter[object]]:
    """Copy a filter into this process.

    Reading costs the server some 1 ms a megabyte, in pieces of 0.1 ms; items added meanwhile may be in.
    """
    if not stored.is_one_bitmap:
        raise TypeError(
            f"{stored.name!r} is several bitmaps, or none that can be read, so there is no copy of it"
        )
    while True:
        (found,) = yield from stored.current()
        handle = yield from stored.acquire()
        bits = Bits(handle.bitmap)
        with suppress(LayoutChanged):
            for first in range(0, len(bits.bytes), PIECE_BYTES):
                bits.unite(first, (yield from stored.run(READ, handle, (first, PIECE_BYTES), reads=True)))
            return _local(stored.name, found, bits, encoder)


def _local(name: str, found: Description, bits: Bits, encoder: Encoder) -> LocalFilter[object]:
    return LocalFilter(name, bits, info.Parts([(found, bits)]), encoder)


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


def _opened(path: str | os.PathLike[str], encoded: int | None, *, verify: bool) -> Opened:
    """Map a file of a filter with that encoding into memory; `ValueError` if it is no saved filter."""
    with Path(path).open("rb") as file:
        saved = Reader(file, verify=verify).saved
        size = os.fstat(file.fileno()).st_size
        if size != saved.num_bytes:
            raise ValueError(f"{os.fspath(path)!r} has {size} bytes and should have {saved.num_bytes}")
        encoding.check(os.fspath(path), mergeable.whole(saved).encoding, encoded)
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    parts = list(_parts(saved, data))
    record = saved.parsed
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
