"""The format of saved filters: a filter of any class as one file (lua/FORMAT.md, "Saved filters").

A filter consists of *parts*, which are filters in one key: the filter itself, its layers, or its shards.  A
file has the headers of all parts, then the bits of all parts, in the same order.
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
from bloomredis.stored.shards.record import IN_USE, ShardRecord

_MAGIC: Final = b"bloomf"
_VERSION: Final = 1
_HEAD: Final = struct.Struct(">6sBBQQII")  # magic, version, 0, length, ttl, bytes of the record, parts
_NUMBER: Final = struct.Struct(">Q")
_ENTRY_BYTES: Final = _NUMBER.size + HEADER_BYTES

HEAD_BYTES: Final = _HEAD.size
DIGEST_BYTES: Final = sha256().digest_size
KIND_BYTES: Final = _HEAD.size + _NUMBER.size + HEADER_BYTES
"""The number of first bytes of a file that determine the kind of its filter."""
_MOST_RECORD_BYTES: Final = shard_record.RECORD_BYTES + 8 * shard_record.MAX_SHARDS
_LAYERED: Final = {each.kind: each for each in (ScalingRecord, RotatingRecord)}
Record = LayerRecord | ShardRecord | None


@dataclass(frozen=True, slots=True)
class Part:
    """A filter in one key: its number among the layers or shards, and its header."""

    number: int
    header: Header

    @property
    def num_bytes(self) -> int:
        """The length of the part's bits in bytes."""
        return self.header.size_bytes - HEADER_BYTES


@dataclass(frozen=True)
class Saved:
    """A saved filter without its bits.

    :param record: the stored layer record or shard record; empty for a filter in one key.
    :param parts: layers in the order of the record, the newest first, or shards by number; shards without
        items are left out.
    :param ttl: the filter's time to live in ms when it was saved, 0 for none.  That of a rotating filter
        follows from its record.
    """

    record: bytes
    parts: tuple[Part, ...]
    ttl: int

    @property
    def kind(self) -> int:
        """The kind of the filter, as the code in a header."""
        return self.record[10] if self.record else self.parts[0].header.kind

    @cached_property
    def parsed(self) -> Record:
        """The record; None for a filter in one key."""
        if not self.record:
            return None
        if self.kind in _LAYERED:
            return _LAYERED[self.kind].parse(self.record)
        return shard_record.parse(self.record)

    @property
    def num_bytes(self) -> int:
        """The length of the file."""
        return len(self.preamble()) + sum(part.num_bytes for part in self.parts) + DIGEST_BYTES

    def preamble(self) -> bytes:
        """Return the bytes of the file before the bits."""
        entries = b"".join(_NUMBER.pack(part.number) + part.header.pack() for part in self.parts)
        bits = sum(part.num_bytes for part in self.parts)
        length = HEAD_BYTES + len(self.record) + len(entries) + bits + DIGEST_BYTES
        numbers = (length, self.ttl, len(self.record), len(self.parts))
        return _HEAD.pack(_MAGIC, _VERSION, 0, *numbers) + self.record + entries

    def first_bytes(self) -> Iterator[tuple[Part, int]]:
        """Yield each part with the index of its first byte of bits in the file."""
        at = len(self.preamble())
        for part in self.parts:
            yield part, at
            at += part.num_bytes

    def check(self) -> None:
        """Raise `ValueError`, which names the fault, unless parts and record belong to one filter."""
        record = self.parsed
        if record is None:
            if [part.number for part in self.parts] != [0]:
                raise ValueError(f"it has parts {[part.number for part in self.parts]} and no record")
        elif isinstance(record, LayerRecord):
            _check_layers(record, self.parts)
        else:
            _check_shards(record, self.parts)

    def renewed(self, *, created_at: int) -> Saved:
        """Return the filter as a new one: the filter and each part get new generations."""
        record = self.parsed
        if record is None:
            (part,) = self.parts
            head = part.header.as_new(os.urandom(8), created_at)
            return replace(self, parts=(Part(0, head),))
        if isinstance(record, LayerRecord):
            head = record.head.as_new(os.urandom(8), created_at)
            return _of_layers(replace(record, head=head), self.parts, self.ttl)
        return _of_shards(record.renewed(IN_USE), self.parts, self.ttl, created_at)


def _of_layers(record: LayerRecord, parts: tuple[Part, ...], ttl: int) -> Saved:
    generation = record.head.generation
    own = tuple(Part(each.number, replace(each.header, generation=generation)) for each in parts)
    return Saved(record.pack(), own, ttl)


def _of_shards(record: ShardRecord, parts: tuple[Part, ...], ttl: int, created_at: int) -> Saved:
    heads = (replace(record.shard_made(created_at), count=each.header.count) for each in parts)
    own = tuple(Part(each.number, head) for each, head in zip(parts, heads, strict=True))
    made = {each.number: created_at for each in parts}
    return Saved(record.settled(made).pack(), own, ttl)


def sizes(head: bytes) -> tuple[int, int]:
    """Return the length of a file with these first bytes, and the number of bytes from there to the bits.

    :raises ValueError: the file is no saved filter.
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
    """Return the saved filter of a file, given its first bytes and the rest up to the bits.

    :raises ValueError: the file is no saved filter, or was saved by a later release; the message names the
        fault.
    """
    try:
        return _parsed(head, rest)
    except (struct.error, BloomError) as error:
        raise ValueError(f"its record or a header is malformed: {error}") from None


def _parsed(head: bytes, rest: bytes) -> Saved:
    length, more = sizes(head)
    _, _, _, _, ttl, own, count = _HEAD.unpack(head)
    if len(rest) != more:
        raise ValueError(f"it ends after {len(head) + len(rest)} bytes, but should have {length}")
    entries = (rest[at : at + _ENTRY_BYTES] for at in range(own, len(rest), _ENTRY_BYTES))
    saved = Saved(rest[:own], tuple(map(_part, entries)), ttl)
    if own and (own < HEADER_BYTES or saved.kind not in {*_LAYERED, shard_record.KIND}):
        raise ValueError("its record is neither one of layers nor one of shards")
    if not own and count != 1:
        raise ValueError(f"it has {count} parts and no record")
    saved.check()
    if saved.num_bytes != length:
        raise ValueError(f"it should have {length} bytes, but its parts make {saved.num_bytes}")
    return saved


def class_of(first: bytes) -> str:
    """Return the class of the filter in a file with these first `KIND_BYTES`; BloomFilter if it has none."""
    if len(first) == KIND_BYTES and first[:6] == _MAGIC:
        *_, record, _ = _HEAD.unpack_from(first)
        kind = first[HEAD_BYTES + (0 if record else _NUMBER.size) + 10]
        return KINDS[kind] if kind < len(KINDS) else KINDS[FILTER]
    return KINDS[FILTER]


def called(saved: Saved) -> str:
    """Return the name of a saved filter's class."""
    return KINDS[saved.kind]


def _part(entry: bytes) -> Part:
    (number,) = _NUMBER.unpack_from(entry)
    own = entry[_NUMBER.size :]
    return Part(number, header.parse(own, COUNTING if own[10] == COUNTING else FILTER))


def _check_layers(record: LayerRecord, parts: tuple[Part, ...]) -> None:
    if [part.number for part in parts] != list(record.numbers):
        raise ValueError(
            f"it has layers {[part.number for part in parts]}, but its record has {record.numbers}"
        )
    for part, began in zip(parts, reversed(record.began), strict=True):
        wanted = replace(record.layer(part.number), created_at=began, count=part.header.count)
        if part.header != wanted:
            raise ValueError(f"its layer {part.number} is {part.header}, but its record says {wanted}")


def _check_shards(record: ShardRecord, parts: tuple[Part, ...]) -> None:
    made = [number for number, time in enumerate(record.made) if time]
    if [part.number for part in parts] != made:
        raise ValueError(f"it has shards {[part.number for part in parts]}, but its record has {made}")
    for part in parts:
        wanted = record.shard_made(record.made[part.number])
        if replace(part.header, count=0) != wanted:
            raise ValueError(f"its shard {part.number} is {part.header}, but its record says {wanted}")
