"""The record of a sharded filter: its shards, their keys, and the choice of an item's shard (lua/FORMAT.md).

The record stores the time at which each shard was created, which determines the shard's identity.
"""

from __future__ import annotations

import math
import os
import struct
from binascii import crc_hqx
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import repeat
from typing import Final

import mmh3

from bloomredis import arguments
from bloomredis.bits import limits, sizing
from bloomredis.bits.arrays import NDArray, np
from bloomredis.stored import header, planning
from bloomredis.stored.header import KINDS, Header

SEED: Final = 0x5EED5EED
"""The seed of the hash that picks the shard; the hash that picks the bits has seed 0."""

SHARD_BITS: Final = 1 << 30
"""The most bits of a shard, unless the caller or `MAX_SHARDS` requires more.

A server allocates 128 MB in 30 to 50 ms.  It would allocate a quarter in 12 ms, but batches of 1,000 over
four times the shards take 2.5 times as long.
"""
KIND: Final = KINDS.index("ShardedBloomFilter")
_TAG_BYTES: Final = 4
"""The number of first bytes that the generations of a record and of its shards share."""
FEWEST_SHARDS: Final = 16
"""The fewest shards: enough to keep the few nodes of a small cluster about equally busy."""
MAX_SHARDS: Final = 4096
MAX_SEED: Final = 2**32 - 1
SLOTS: Final = 16_384
MAX_RANGES: Final = 256
"""The most ranges of slots to spread shards over; also the mean number of keys tried until one fits."""

RECORD_BYTES: Final = 96
_EXTENSION: Final = struct.Struct(">QQQHHI")
_LAST: Final = 1, 0
"""The last two numbers before the table, the same in every record."""

IN_USE: Final = 0
MAKING: Final = 1
"""The state of a record whose shards are being created, while shards of an earlier record are deleted."""
DELETED: Final = 2
"""The state of a record that is being deleted; its shards are deleted first."""
RESTORED: Final = 3
"""The state of a record that was written after the shards in its table.

These shards expire soon unless a client gives them the record's time to live.  The other shards are being
created.
"""
NEW: Final = 4
"""The state of the first record under a name: its shards are being created.

If its creator finds a settled shard of another record, the name was in use, and that record was lost.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRecord:
    """The parameters of a sharded filter.

    :ivar head: has the capacity and error rate of the whole filter, and the bits and hashes of one shard.
    :ivar state: the work that is left to do; none if it is `IN_USE`.
    :ivar made: the time at which each shard was created, in microseconds by the clock of its server; 0 for a
        shard that does not exist yet.
    """

    head: Header
    shards: int
    seed: int
    shard_capacity: int
    state: int = IN_USE
    made: tuple[int, ...] = ()

    def pack(self) -> bytes:
        """Return the stored bytes."""
        numbers = (self.shards, self.seed, self.shard_capacity, self.state)
        return self.head.pack() + _EXTENSION.pack(*numbers, *_LAST) + self.table

    @property
    def table(self) -> bytes:
        """The bytes of the times at which the shards were created."""
        return struct.pack(f">{len(self.made)}Q", *self.made)

    @property
    def tag(self) -> bytes:
        """The prefix of the generations of this record's shards, which no other record shares."""
        return self.head.generation[:_TAG_BYTES]

    @property
    def shard(self) -> Header:
        """The header of a shard, without the time at which it is created."""
        whole = replace(self.head, generation=self.tag + bytes(8 - _TAG_BYTES), created_at=0, count=0)
        return replace(whole, kind=0, capacity=self.shard_capacity, flags=header.DEFERRED)

    def shard_made(self, time: int) -> Header:
        """Return the header of a shard that was created at this time."""
        generation = self.tag + time.to_bytes(8, "big")[_TAG_BYTES:]
        return replace(self.shard, generation=generation, created_at=time)

    def owns(self, shard: Header) -> bool:
        """Return True if a header belongs to a shard of this record, False if to one of another record."""
        return shard.generation[:_TAG_BYTES] == self.tag

    def settled(self, made: Mapping[int, int]) -> ShardRecord:
        """Return the record of a saved filter, with the times of the shards that it has."""
        times = tuple(made.get(number, 0) for number in range(self.shards))
        return replace(self, state=IN_USE, made=times)

    def renewed(self, state: int) -> ShardRecord:
        """Return the record with a new generation, whose shards do not exist yet."""
        head = replace(self.head, generation=os.urandom(8), count=0, flags=0)
        return replace(self.unmade(state), head=head)

    def unmade(self, state: int = MAKING) -> ShardRecord:
        """Return the record in a state in which missing shards are created."""
        return replace(self, state=state, made=(0,) * self.shards, head=replace(self.head, flags=0))

    def encoded(self, encoding: int) -> ShardRecord:
        """Return the record with this number of an encoding."""
        return replace(self, head=replace(self.head, encoding=encoding))

    def number(self, encoded: bytes) -> int:
        """Return the number of an item's shard."""
        return mmh3.hash(encoded, self.seed, False) * self.shards >> 32

    def parted(self, items: Sequence[str | bytes]) -> dict[int, NDArray[np.intp]]:
        """Return the indexes of each shard's items, in order; shards without items are left out."""
        hashes = np.fromiter(map(mmh3.hash, items, repeat(self.seed), repeat(False)), np.uint64, len(items))
        numbers = (hashes * np.uint64(self.shards) >> np.uint64(32)).astype(np.uint16)
        order = numbers.argsort(kind="stable")  # linear time, since the numbers have two bytes
        ordered = numbers[order]
        ends = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
        runs = np.split(order, ends) if len(order) else ()
        return {int(numbers[own[0]]): own for own in runs}

    @property
    def placement(self) -> tuple[int, int]:
        """The parameters that determine the key of an item."""
        return self.shards, self.seed


def parse(data: bytes) -> ShardRecord:
    """Return a record; raise `ValueError`, which names the fault, for other bytes."""
    head = header.parse(data[: limits.HEADER_BYTES], KIND)
    if len(data) < RECORD_BYTES:
        raise ValueError(f"a record has {RECORD_BYTES} bytes or more, not {len(data)}")
    shards, seed, capacity, state, *last = _EXTENSION.unpack(data[limits.HEADER_BYTES : RECORD_BYTES])
    table = data[RECORD_BYTES:]
    possible = 1 <= shards <= MAX_SHARDS and seed <= MAX_SEED and capacity >= 1 and state <= NEW
    if not possible or tuple(last) != _LAST or len(table) != 8 * shards:
        raise ValueError(
            f"its parameters make no sharded filter: shards {shards}, seed {seed}, capacity {capacity}, "
            f"state {state}, numbers {last}, table of {len(table)} bytes"
        )
    return ShardRecord(
        head=head,
        shards=shards,
        seed=seed,
        shard_capacity=capacity,
        state=state,
        made=struct.unpack(f">{len(table) // 8}Q", table),
    )


def checked_name(name: str) -> str:
    """Return the name of a sharded filter; raise `ValueError` if it cannot be part of a hash tag."""
    if "}" in arguments.name(name):
        raise ValueError(
            f"the name of a sharded filter must not contain '}}', which ends a hash tag: {name!r}"
        )
    return name


def shard_of(name: str, number: int) -> str:
    """Return the name of a shard for a message."""
    return f"shard {number} of {name!r}"


def key(name: str, shards: int, number: int) -> str:
    """Return the key of a shard; its slot lies in the shard's range of a cluster's slots."""
    ranges = min(shards, MAX_RANGES)
    wanted = number * ranges // shards
    attempt = 0
    while crc_hqx(f"{name}:{number}:{attempt}".encode(), 0) % SLOTS * ranges // SLOTS != wanted:
        attempt += 1
    return f"{{{name}:{number}:{attempt}}}"


@lru_cache
def plan_record(
    capacity: int,
    error_rate: float,
    *,
    shards: int | None = None,
    layout: str | None = None,
    seed: int | None = None,
) -> ShardRecord:
    """Return the record of a new filter; raise `ValueError` if the shards cannot hold it."""
    wanted = _default_shards(capacity, error_rate, layout) if shards is None else shards
    each = _shard_capacity(capacity, wanted, error_rate)
    try:
        head = planning.new_header(each, error_rate, layout)
    except ValueError as error:
        raise ValueError(f"with {wanted} shards of capacity {each} each (shards={shards}): {error}") from None
    return ShardRecord(
        head=replace(head, kind=KIND, capacity=capacity),
        shards=wanted,
        seed=SEED if seed is None else seed,
        shard_capacity=each,
    )


def _default_shards(capacity: int, error_rate: float, layout: str | None) -> int:
    """Return the smallest number of shards, at least `FEWEST_SHARDS`, with at most `SHARD_BITS` each."""
    shards = max(FEWEST_SHARDS, math.ceil(sizing.classic_bits(capacity, error_rate) / SHARD_BITS))
    while shards < MAX_SHARDS:
        each = _shard_capacity(capacity, shards, error_rate)
        bits = planning.plan_layout(layout or planning.DEFAULT, each, error_rate).num_bits
        if bits <= SHARD_BITS:
            break
        shards = max(shards + 1, math.floor(shards * bits / SHARD_BITS) - 1)
    return min(shards, MAX_SHARDS)


def _shard_capacity(capacity: int, shards: int, error_rate: float) -> int:
    """Return the capacity of each shard: its share, and a margin since the shares are uneven.

    The number of items in a shard is Poisson distributed with mean n/s.  A shard's false-positive rate grows
    roughly with the ln(1/p)-th power of that number, so fuller shards add more than emptier shards save.  For
    large n/s a margin of ln(1/p)/2 items balances this.  A margin of one standard deviation, sqrt(n/s), and
    ln(1/p) items keeps the mean rate below p even for shards of a few items.
    """
    if shards == 1:
        return capacity
    share = capacity / shards
    return math.ceil(share + math.sqrt(share) - math.log(error_rate))
