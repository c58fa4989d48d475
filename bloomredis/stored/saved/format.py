"""The format of saved filters: a filter of any class as one file (lua/FORMAT.md, "Saved filters").

A filter is made of *parts*, which are filters of one key: itself, its layers, or its shards.  A file has the
header of each part, and then the bits of one part after another.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Final

from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.errors import BloomError
from bloomredis.stored import header
from bloomredis.stored.header import COUNTING, FILTER, KINDS, Header
from bloomredis.stored.layers.record import LayerRecord, RotatingRecord, ScalingRecord
from bloomredis.stored.shards import record as shard_record
from bloomredis.stored.shards.record import ShardRecord

_MAGIC: Final = b"bloomf"
_VERSION: Final = 1
_HEAD: Final = struct.Struct(">6sBBQQII")  # magic, version, 0, length, ttl, bytes of the record, parts
_NUMBER: Final = struct.Struct(">Q")
_ENTRY_BYTES: Final = _NUMBER.size + HEADER_BYTES

HEAD_BYTES: Final = _HEAD.size
DIGEST_BYTES: Final = sha256().digest_size
KIND_BYTES: Final = _HEAD.size + _NUMBER.size + HEADER_BYTES
"""So many first bytes of a file say what kind of filter it has."""
_MOST_RECORD_BYTES: Final = shard_record.RECORD_BYTES + 8 * shard_record.MAX_SHARDS
_LAYERED: Final = {each.kind: each for each in (ScalingRecord, RotatingRecord)}
Record = LayerRecord | tuple[ShardRecord, list[bytes]] | None


@dataclass(frozen=True, slots=True)
class Part:
    """A filter of one key: its number among the layers or shards, and its header."""

    number: int
    header: Header

    @property
    def num_bytes(self) -> int:
        """Bytes of its bits."""
        return self.header.size_bytes - HEADER_BYTES


@dataclass(frozen=True)
class Saved:
    """All of a saved filter but the bits.

    :param record: the layer record or shard record as it is stored, empty for a filter in one key.
    :param parts: layers are in the order of the record, the newest first, and shards by number; one that was
        never made is left out.
    :param ttl: ms that the filter had left to live, 0 for ever; that of a rotating filter follows from its
        record.
    """

    record: bytes
    parts: tuple[Part, ...]
    ttl: int

    @property
    def kind(self) -> int:
        """The kind of the filter, by its code in a header."""
        return self.record[10] if self.record else self.parts[0].header.kind

    @cached_property
    def parsed(self) -> Record:
        """The record, and of shards the table; None for a filter in one key."""
        if not self.record:
            return None
        if self.kind in _LAYERED:
            return _LAYERED[self.kind].parse(self.record)
        return shard_record.parse(self.record)

    @property
    def num_bytes(self) -> int:
        """Length of the file."""
        return len(self.preamble()) + sum(part.num_bytes for part in self.parts) + DIGEST_BYTES

    def preamble(self) -> bytes:
        """Return the bytes of the file before the bits."""
        entries = b"".join(_NUMBER.pack(part.number) + part.header.pack() for part in self.parts)
        bits = sum(part.num_bytes for part in self.parts)
        length = HEAD_BYTES + len(self.record) + len(entries) + bits + DIGEST_BYTES
        numbers = (length, self.ttl, len(self.record), len(self.parts))
        return _HEAD.pack(_MAGIC, _VERSION, 0, *numbers) + self.record + entries

    def first_bytes(self) -> Iterator[tuple[Part, int]]:
        """Yield each part with the index of its first byte in the file."""
        at = len(self.preamble())
        for part in self.parts:
            yield part, at
            at += part.num_bytes

    def check(self) -> None:
        """Raise `ValueError`, which names the fault, unless parts and record are those of one filter."""
        record = self.parsed
        if record is None:
            if [part.number for part in self.parts] != [0]:
                raise ValueError(f"it has parts {[part.number for part in self.parts]} and no record")
        elif isinstance(record, LayerRecord):
            _check_layers(record, self.parts)
        else:
            _check_shards(*record, self.parts)

    def renewed(self, *, created_at: int) -> Saved:
        """Return the same as another filter: of a new generation, that of each part too."""
        record = self.parsed
        if record is None:
            (part,) = self.parts
            head = part.header.as_new(os.urandom(8), created_at)
            return replace(self, parts=(Part(0, head),))
        if isinstance(record, LayerRecord):
            made = replace(record, head=replace(record.head, generation=os.urandom(8)))
            return _of_layers(made, self.parts, self.ttl)
        return _of_shards(record[0].renewed(), self.parts, self.ttl, created_at)


def _of_layers(record: LayerRecord, parts: tuple[Part, ...], ttl: int) -> Saved:
    generation = record.head.generation
    own = tuple(Part(each.number, replace(each.header, generation=generation)) for each in parts)
    return Saved(record.pack(), own, ttl)


def _of_shards(record: ShardRecord, parts: tuple[Part, ...], ttl: int, created_at: int) -> Saved:
    own = tuple(
        Part(
            each.number,
            replace(each.header, generation=record.tag + os.urandom(4), created_at=created_at),
        )
        for each in parts
    )
    return Saved(record.pack({each.number: each.header.generation for each in own}), own, ttl)


def sizes(head: bytes) -> tuple[int, int]:
    """Return the length of a file with these first bytes, and how many more there are before the bits.

    :raises ValueError: it is no saved filter.
    """
    if len(head) != HEAD_BYTES or head[:6] != _MAGIC:
        raise ValueError("it is no saved filter: it does not begin with the word bloomf")
    _, version, zero, length, _, record, parts = _HEAD.unpack(head)
    if version != _VERSION:
        raise ValueError(f"it has version {version} of the format; this release reads version {_VERSION}")
    if zero or record > _MOST_RECORD_BYTES or parts > shard_record.MAX_SHARDS:
        raise ValueError(f"it is no saved filter: a record of {record} bytes, {parts} parts, {zero}")
    return length, record + parts * _ENTRY_BYTES


def parse(head: bytes, rest: bytes) -> Saved:
    """Return what a file with these first bytes and those up to the bits has.

    :raises ValueError: it is no saved filter, or one of a later release; the message names the fault.
    """
    try:
        return _parsed(head, rest)
    except (struct.error, BloomError) as error:
        raise ValueError(f"its record or a header is malformed: {error}") from None


def _parsed(head: bytes, rest: bytes) -> Saved:
    length, more = sizes(head)
    _, _, _, _, ttl, own, count = _HEAD.unpack(head)
    if len(rest) != more:
        raise ValueError(f"it ends after {len(head) + len(rest)} bytes, and should have {length}")
    entries = (rest[at : at + _ENTRY_BYTES] for at in range(own, len(rest), _ENTRY_BYTES))
    saved = Saved(rest[:own], tuple(map(_part, entries)), ttl)
    if own and (own < HEADER_BYTES or saved.kind not in {*_LAYERED, shard_record.KIND}):
        raise ValueError("its record is none of layers or of shards")
    if not own and count != 1:
        raise ValueError(f"it has {count} parts and no record")
    saved.check()
    if saved.num_bytes != length:
        raise ValueError(f"it should have {length} bytes, and its parts {saved.num_bytes}")
    return saved


def class_of(first: bytes) -> str:
    """Return the class that a file with these first `KIND_BYTES` has; BloomFilter for any other file."""
    if len(first) == KIND_BYTES and first[:6] == _MAGIC:
        *_, record, _ = _HEAD.unpack_from(first)
        kind = first[HEAD_BYTES + (0 if record else _NUMBER.size) + 10]
        return KINDS[kind] if kind < len(KINDS) else KINDS[FILTER]
    return KINDS[FILTER]


def called(saved: Saved) -> str:
    """Return the name of the class that a saved filter has."""
    return KINDS[saved.kind]


def _part(entry: bytes) -> Part:
    (number,) = _NUMBER.unpack_from(entry)
    own = entry[_NUMBER.size :]
    return Part(number, header.parse(own, COUNTING if own[10] == COUNTING else FILTER))


def _check_layers(record: LayerRecord, parts: tuple[Part, ...]) -> None:
    if [part.number for part in parts] != list(record.numbers):
        raise ValueError(f"it has layers {[part.number for part in parts]}, its record {record.numbers}")
    for part, began in zip(parts, reversed(record.began), strict=True):
        wanted = replace(record.layer(part.number), created_at=began, count=part.header.count)
        if part.header != wanted:
            raise ValueError(f"its layer {part.number} is {part.header}, by its record {wanted}")


def _check_shards(record: ShardRecord, table: list[bytes], parts: tuple[Part, ...]) -> None:
    made = [number for number, entry in enumerate(table) if entry]
    if [part.number for part in parts] != made:
        raise ValueError(f"it has shards {[part.number for part in parts]}, its record {made}")
    for part in parts:
        wanted = replace(record.shard, generation=table[part.number])
        if replace(part.header, created_at=0, count=0) != wanted:
            raise ValueError(f"its shard {part.number} is {part.header}, by its record {wanted}")
