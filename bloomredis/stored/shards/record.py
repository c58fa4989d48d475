"""The record of a sharded filter: its shards, their keys, and the items of each (lua/FORMAT.md)."""

from __future__ import annotations

import math
import os
import struct
from binascii import crc_hqx
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, repeat
from types import MappingProxyType
from typing import Final, SupportsIndex

import mmh3
import numpy as np

from bloomredis import arguments
from bloomredis.bits import limits, sizing
from bloomredis.stored import header, planning
from bloomredis.stored.header import KINDS, Header

SEED: Final = 0x5EED5EED
"""Of the hash that picks the shard; not that of the hash that picks the bits, which is 0."""

SHARD_BITS: Final = 1 << 30
"""The most bits of a shard, unless the caller or `MAX_SHARDS` wants more: 128 MB are made in 30 to 50 ms.
A quarter would be made in 12 ms, and batches of 1,000 over four times the shards take 2.5 times as long."""
KIND: Final = KINDS.index("ShardedBloomFilter")
FEWEST_SHARDS: Final = 16
"""Enough to keep a handful of nodes about equally busy, which small clusters have."""
MAX_SHARDS: Final = 4096
SLOTS: Final = 16_384
MAX_RANGES: Final = 256
"""Ranges of slots that the shards are spread over: a key is tried so often, on average, until it fits."""

RECORD_BYTES: Final = 96
_EXTENSION: Final = struct.Struct(">QQQHHI")

IN_USE: Final = 0
SWEEPING: Final = 1
"""State of a record whose filter was emptied: shards of the time before may be left."""
DELETED: Final = 2
"""State of a record that is about to go: first the shards do."""
RESTORED: Final = 3
"""State of a record that was written after its shards, which expire soon if nobody lets them live on.
Meanwhile the count in its header is the time to live in ms that all are to have, 0 for ever."""
PREPARED: Final = 4
"""State of a copy until its record is stored; no item is added before every copy is `IN_USE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRecord:
    """The parameters of a sharded filter.

    `head` has capacity and error rate of the whole, and the bits and hashes of one shard.  Of several
    servers each has a copy, with its `place` among them.  `state` says what is left to do: nothing, if it is
    `IN_USE`.
    """

    head: Header
    shards: int
    seed: int
    shard_capacity: int
    servers: int = 1
    place: int = 0
    state: int = IN_USE

    def pack(self, made: Mapping[int, bytes] = MappingProxyType({})) -> bytes:
        """Return the bytes that are stored.

        :param made: the generations of the shards that have been made, by their numbers.
        """
        numbers = (self.shards, self.seed, self.shard_capacity, self.state, self.servers, self.place)
        entries = (made.get(number, bytes(8)) for number in range(self.shards if self.place == 0 else 0))
        return self.head.pack() + _EXTENSION.pack(*numbers) + b"".join(entries)

    @property
    def tag(self) -> bytes:
        """The prefix of the generations of this record's shards, and of no other record's."""
        return tag_of(self.head.generation)

    @property
    def shard(self) -> Header:
        """The header of a new shard, without a generation."""
        whole = replace(self.head, generation=bytes(8), created_at=0, count=0)
        return replace(whole, kind=0, capacity=self.shard_capacity)

    def settled(self) -> ShardRecord:
        """Return the record as it is with nothing left to do, on one server."""
        return replace(self, head=replace(self.head, count=0), state=IN_USE, servers=1, place=0)

    def renewed(self, state: int = IN_USE) -> ShardRecord:
        """Return the record of another generation."""
        return replace(self, head=replace(self.head, generation=os.urandom(8), count=0), state=state)

    def at(self, place: int) -> ShardRecord:
        """Return what is stored at a place: the record, or a copy that is made before it."""
        return replace(self, place=place, state=PREPARED if place else self.state)

    def encoded(self, encoding: int) -> ShardRecord:
        """Return the record of a filter whose items are encoded so."""
        return replace(self, head=replace(self.head, encoding=encoding))

    def number(self, encoded: bytes) -> int:
        """Return the number of the shard that an item is in."""
        return mmh3.hash(encoded, self.seed, False) * self.shards >> 32

    def parted(self, items: Sequence[str | bytes]) -> dict[int, list[int]]:
        """Return the indexes of the items of each shard that has any, in order."""
        hashes = np.fromiter(map(mmh3.hash, items, repeat(self.seed), repeat(False)), np.uint64, len(items))
        numbers = (hashes * np.uint64(self.shards) >> np.uint64(32)).astype(np.intp)
        order = numbers.argsort(kind="stable")
        ordered, indexes = numbers[order], order.tolist()
        ends = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
        runs = pairwise([0, *ends.tolist(), len(indexes)])
        return {int(ordered[start]): indexes[start:end] for start, end in runs if start < end}

    def server(self, number: int) -> int:
        """Return the place of the server that has a shard."""
        return number % self.servers


def tag_of(generation: bytes) -> bytes:
    """Return what the generation of a record has in common with those of its shards."""
    return generation[:4]


def parse(data: bytes) -> tuple[ShardRecord, list[bytes]]:
    """Return a record and its table: the generation of each shard, b"" for one that was never made."""
    head = header.parse(data[: limits.HEADER_BYTES], KIND)
    if len(data) < RECORD_BYTES:
        raise ValueError(f"a record has {RECORD_BYTES} bytes or more, not {len(data)}")
    shards, seed, capacity, state, servers, place = _EXTENSION.unpack(
        data[limits.HEADER_BYTES : RECORD_BYTES]
    )
    table = data[RECORD_BYTES:]
    record = ShardRecord(
        head=head,
        shards=shards,
        seed=seed,
        shard_capacity=capacity,
        servers=servers,
        place=place,
        state=state,
    )
    possible = 1 <= shards <= MAX_SHARDS and seed < 1 << 32 and capacity >= 1
    if not (possible and place < servers and state <= (PREPARED if place else RESTORED)) or (
        len(table) != (8 * shards if place == 0 else 0)
    ):
        raise ValueError(f"its parameters make no sharded filter: {record}, table of {len(table)} bytes")
    entries = (table[i : i + 8] for i in range(0, len(table), 8))
    return record, [entry if any(entry) else b"" for entry in entries]


def checked_name(name: str) -> str:
    """Return the name of a sharded filter, which is part of hash tags."""
    if "}" in arguments.name(name):
        raise ValueError(
            f"the name of a sharded filter must not contain '}}', which ends a hash tag: {name!r}"
        )
    return name


def key(name: str, shards: int, number: int) -> str:
    """Return the key of a shard, which lies in this shard's share of a cluster's slots."""
    ranges = min(shards, MAX_RANGES)
    wanted = number * ranges // shards
    attempt = 0
    while crc_hqx(f"{name}:{number}:{attempt}".encode(), 0) % SLOTS * ranges // SLOTS != wanted:
        attempt += 1
    return f"{{{name}:{number}:{attempt}}}"


def plan(
    capacity: int,
    error_rate: float,
    *,
    shards: SupportsIndex | None = None,
    layout: str | None = None,
    seed: SupportsIndex | None = None,
    servers: int = 1,
) -> ShardRecord:
    """Return the record of a new filter.  Raises `ValueError` if so many shards cannot hold it."""
    count = sizing.checked_capacity(capacity)
    rate = sizing.checked_error_rate(error_rate)
    planning.check_name(layout or planning.DEFAULT)
    wanted = max(servers, _default_shards(count, rate, layout)) if shards is None else checked_shards(shards)
    if wanted < servers:
        raise ValueError(f"shards={wanted} leave some of {servers} servers without one")
    each = _shard_capacity(count, wanted, rate)
    try:
        head = planning.new_header(each, rate, layout)
    except ValueError as error:
        raise ValueError(f"with {wanted} shards of capacity {each} each (shards={shards}): {error}") from None
    return ShardRecord(
        head=replace(head, kind=KIND, capacity=count),
        shards=wanted,
        seed=SEED if seed is None else checked_seed(seed),
        shard_capacity=each,
        servers=servers,
    )


def checked_shards(shards: SupportsIndex) -> int:
    """Return a number of shards as an int.  Raises `TypeError` or `ValueError`."""
    number = sizing.integer("shards", shards)
    if not 1 <= number <= MAX_SHARDS:
        raise ValueError(f"shards must be 1 to {MAX_SHARDS}, not {number}")
    return number


def checked_seed(seed: SupportsIndex) -> int:
    """Return the seed of the hash that picks the shard.  Raises `TypeError` or `ValueError`."""
    number = sizing.integer("seed", seed)
    if not 1 <= number < 1 << 32:
        raise ValueError(f"seed must be 1 to 2^32 - 1 (0 is the seed of the bits' hash), not {number}")
    return number


def _default_shards(capacity: int, error_rate: float, layout: str | None) -> int:
    """Return the fewest shards, from `FEWEST_SHARDS` on, that have no more than `SHARD_BITS` each."""
    shards = max(FEWEST_SHARDS, math.ceil(sizing.classic_bits(capacity, error_rate) / SHARD_BITS))
    while shards < MAX_SHARDS:
        each = _shard_capacity(capacity, shards, error_rate)
        bits = planning.plan(layout or planning.DEFAULT, each, error_rate).num_bits
        if bits <= SHARD_BITS:
            break
        shards = max(shards + 1, math.floor(shards * bits / SHARD_BITS) - 1)
    return min(shards, MAX_SHARDS)


def _shard_capacity(capacity: int, shards: int, error_rate: float) -> int:
    """Return the items that each shard is made for: its share, and a margin since the shares are uneven.

    The items of a shard are Poisson distributed with mean n/s, and its false-positive rate grows about
    with their ln(1/p)-th power, so that the fuller shards add more than the emptier ones save.  A margin
    of ln(1/p)/2 items makes up for that where n/s is large; one standard deviation, sqrt(n/s), and twice
    as many items keep the mean rate below p down to shards of a few items.
    """
    if shards == 1:
        return capacity
    share = capacity / shards
    return math.ceil(share + math.sqrt(share) - math.log(error_rate))
