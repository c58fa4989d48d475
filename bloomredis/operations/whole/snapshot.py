"""A copy of a filter's bits in this process, which answers without the server.

Bits are only ever set.  So a True is right as long as the filter keeps its generation, however old the copy
is; a False may be out of date.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, Self, cast

from bloomredis.arguments import listed
from bloomredis.bits.arrays import NDArray, np
from bloomredis.bits.batch import Encoded
from bloomredis.bits.bitmap import Bits
from bloomredis.bits.classic import Classic
from bloomredis.bits.encoding import Encoder, number_of
from bloomredis.later import later
from bloomredis.operations.codec import Codec
from bloomredis.operations.options import I
from bloomredis.operations.whole import info
from bloomredis.operations.whole.info import FilterInfo
from bloomredis.protocol.clock import next_round
from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.pieces import PIECE_BYTES, READ
from bloomredis.protocol.steps import Op
from bloomredis.stored import encoding, planning
from bloomredis.stored.header import COUNTING, Header
from bloomredis.stored.layers.record import LayerRecord
from bloomredis.stored.shards.record import ShardRecord
from bloomredis.stored.state.base import Stored
from bloomredis.stored.state.handle import Description, LayoutChanged

if TYPE_CHECKING:
    from bloomredis.operations.whole import files
    from bloomredis.stored.saved import mergeable
    from bloomredis.stored.saved.format import Saved
else:
    files = later("bloomredis.operations.whole", "files")
    mergeable = later("bloomredis.stored.saved", "mergeable")


class HasItems(Protocol):
    """Bits that answer for encoded items: those of one filter, of layers or of shards."""

    def has(self, encoded: bytes) -> bool:
        """Return True if an item is in the filter."""

    def has_many(self, encoded: Encoded) -> NDArray[np.bool_]:
        """Return the answer for each item, as an array."""


class LocalFilter(Generic[I]):
    """A read-only copy of a filter, from the time when `snapshot()` read it, or when it was saved.

    It never asks the server.  A True was right while the filter kept its generation; a False may be out of
    date.  A snapshot takes as much memory as the filter's bits; an opened file takes only the memory of the
    pages that are read.
    """

    def __init__(self, name: str, answers: HasItems, about: info.Parts, encoder: Encoder) -> None:
        self.name = name
        self._answers = answers
        self._about = about
        self._encoder: Any = encoder  # the encoder of the filter's items

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        encode: Callable[[I], bytes] | None = None,
        verify: bool = True,
    ) -> Self:
        """Open a file that `save` wrote; this needs no server, and no memory for the bits.

        The file is mapped into memory, which processes share.  Leave it unchanged while it is open: if a
        mapped file is truncated, the process is ended by SIGBUS.  For a counting filter one bit for each
        counter is kept in memory, a quarter of the file's size.

        :param encode: as in the constructor; it must be the `encode` of the saved filter.
        :param verify: read and check the whole file, at about 1 GB a second; False checks only its beginning.
        :raises ValueError: the file is no saved filter, or was truncated or changed.
        :raises FilterMismatchError: the filter was created with another `encode`.
        """
        opened = _opened(path, number_of(encode), verify=verify)
        return cls(os.fspath(path), opened.answers, opened.about, cast("Encoder", Codec(encode, None)))

    @property
    def _bits(self) -> bytes:
        """The bits of a filter in one bitmap as the server had them, without the header."""
        return bytes(cast("Bits", self._answers).bytes)

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
        return self._about.info(self.name)

    def __repr__(self) -> str:
        return f"<LocalFilter of {self.name!r}: {self._about.size_bytes} bytes>"


def snapshot(stored: Stored, encoder: Encoder) -> Op[LocalFilter[object]]:
    """Copy a filter into this process.

    Reading it costs the server about 1 ms a megabyte, in pieces of 0.1 ms.  Items added meanwhile may or may
    not be in the copy.
    """
    if not stored.is_one_bitmap:
        raise TypeError(f"{stored.name!r} cannot be copied: it has several bitmaps, or none that can be read")
    rounds = None
    while True:
        rounds = yield from next_round(rounds, stored.name)
        (found,) = yield from stored.current()
        handle = yield from stored.existing()
        bits = Bits(handle.bitmap)
        with suppress(LayoutChanged):
            for first in range(0, len(bits.bytes), PIECE_BYTES):
                bits.unite(first, (yield from stored.run(READ, handle, (first, PIECE_BYTES), reads=True)))
            return _local(stored.name, found, bits, encoder)


def _local(name: str, found: Description, bits: Bits, encoder: Encoder) -> LocalFilter[object]:
    return LocalFilter(name, bits, info.Parts([(found, bits)]), encoder)


_PIECE_BYTES: Final = 1 << 20
"""Bytes of counters turned into bits at a time; a multiple of 4, so that the bits fill whole bytes."""


class AnyOf(NamedTuple):
    """The layers of a filter: an item is in the filter if it is in any layer."""

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


class OneOf(NamedTuple):
    """The shards of a filter: an item belongs to the shard that its hash picks; a missing shard is empty."""

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
                present[own] = self.shards[number].has_many([encoded[i] for i in own.tolist()])
        return present


class Opened(NamedTuple):
    """An open file: its answers, and the description of its filter."""

    answers: HasItems
    about: info.Parts


def _opened(path: str | os.PathLike[str], encoded: int | None, *, verify: bool) -> Opened:
    """Map a file of a filter with that encoding into memory; raise `ValueError` if it is no saved filter."""
    with files.checked_path(path).open("rb") as file:
        saved = files.Reader(file, verify=verify).saved
        size = os.fstat(file.fileno()).st_size
        if size != saved.num_bytes:
            raise ValueError(f"{os.fspath(path)!r} has {size} bytes and should have {saved.num_bytes}")
        encoding.check_encoding(os.fspath(path), mergeable.whole(saved).encoding, encoded)
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    parts = list(_parts(saved, data))
    record = saved.parsed
    about = info.Parts(parts, record, saved.ttl)
    if isinstance(record, LayerRecord):
        return Opened(AnyOf([bits for _, bits in parts]), about)
    if record is not None:
        numbers = (part.number for part in saved.parts)
        shards = {number: bits for number, (_, bits) in zip(numbers, parts, strict=True)}
        return Opened(OneOf(record, shards), about)
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
