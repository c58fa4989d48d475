"""The parts of a sharded filter: its shards, and the copies of its record on other servers.

A part is created with a time to live of a minute.  Its creator reads the record again and then *settles* the
part: the part gets the record's time to live.  A part whose record has vanished by then expires.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from bloomredis.errors import FilterLostError, FilterMismatchError, FilterNotFoundError
from bloomredis.protocol import forms, scripts
from bloomredis.protocol.calls import Wait
from bloomredis.protocol.replies import Refusal
from bloomredis.protocol.steps import Op
from bloomredis.stored import header, planning
from bloomredis.stored.header import BEING_MADE, FILTER, Header
from bloomredis.stored.one_key.single import State, StoredFilter
from bloomredis.stored.shards import record as shard_record
from bloomredis.stored.shards.record import ShardRecord
from bloomredis.stored.state.handle import Handle
from bloomredis.stored.state.versioned import Versioned

PART_MS: Final = 60_000
"""The time to live of a part until its creator has read the record again."""
_RESERVE, _DESCRIBE = (scripts.load_script(verb, forms.state) for verb in ("reserve", "describe"))
_DELETE, _SETTLE = (scripts.load_script(verb, forms.integer) for verb in ("delete", "settle_part"))
RESERVE_RECORD: Final = scripts.load_script("reserve_record", forms.record)


class Seen(NamedTuple):
    """A stored part; `ttl` is its time to live in ms, negative if it does not expire."""

    head: Header
    ttl: int

    @property
    def is_being_made(self) -> bool:
        """True if the part expires unless a client settles it."""
        return bool(self.head.flags & BEING_MADE)

    @property
    def stays(self) -> bool:
        """True if the part is settled and does not expire within a minute."""
        return not self.is_being_made and not 0 <= self.ttl <= PART_MS


class StoredPart(StoredFilter):
    """A part as one record describes it; the filter's object may know a newer record by now."""

    def __init__(self, key: str, kind: int, wait: Wait | None) -> None:
        super().__init__(key, new=None, layout=None, ttl=0, on_lost="raise", wait=wait, kind=kind)

    @abstractmethod
    def make(self) -> Op[Seen]:
        """Create the part unless the key exists; return the stored part."""

    def seen(self) -> Op[Seen | None]:
        """Return the stored part of this or another record; None if the key is missing.

        :raises FilterMismatchError: the key holds no part that this release can read.
        """
        try:
            return self._seen((yield from self._call(_DESCRIBE, [])))
        except FilterNotFoundError:
            return None

    def _seen(self, reply: State) -> Seen:
        data, size, ttl = reply
        try:
            head = header.parse(data, self._kind)
        except ValueError as error:
            raise FilterMismatchError(f"{self.name!r} is no part of a sharded filter: {error}") from None
        if not head.has_size(size):
            raise FilterMismatchError(
                f"{self.name!r} is damaged: it has {size} bytes, its header says {head.size_bytes}; "
                "delete the key or restore it"
            )
        return Seen(head, ttl)

    def settle(self, seen: Seen, ttl: int) -> Op[bool]:
        """Let the part live for `ttl` ms from now, without limit for 0; do nothing if it is settled.

        :returns: False if the part has vanished, or another client has settled it meanwhile.
        """
        if not seen.is_being_made:
            return True
        return (yield from self._as_known(_SETTLE, [self.key], [seen.head.identity, ttl])) is not None

    def drop(self, head: Header) -> Op[None]:
        """Delete the part if it has this header."""
        yield from self._as_known(_DELETE, [self.key], [head.identity])


def being_made(head: Header) -> Header:
    """Return the header of a part that is not settled yet."""
    return replace(head, flags=head.flags | BEING_MADE)


class StoredCopy(StoredPart):
    """A copy of the record on another server, where it reserves the name.

    :param new: the bytes of the copy.
    :param check: parses a stored copy, and raises if it belongs to another filter.
    """

    def __init__(
        self, name: str, new: bytes, wait: Wait | None, check: Callable[[bytes], ShardRecord]
    ) -> None:
        super().__init__(name, shard_record.KIND, wait)
        self._bytes = new
        self._check = check

    def make(self) -> Op[Seen]:
        return (yield from self._ask(self._bytes, PART_MS, self.wait))

    def seen(self) -> Op[Seen | None]:
        try:
            return (yield from self._ask(b"", 0, None))
        except FilterNotFoundError:
            return None

    def _ask(self, new: bytes, ttl: int, wait: Wait | None) -> Op[Seen]:
        data, left = yield from self._call(RESERVE_RECORD, [new, ttl, b""], wait)
        return Seen(self._check(data).head, left)


class OwningFilter(Protocol):
    """The sharded filter that a shard belongs to."""

    name: str
    handle: Handle | None

    @property
    def known_record(self) -> ShardRecord:
        """The record that the object knows."""

    def acquire(self) -> Op[Handle]:
        """Open the filter if the object has not opened it."""

    def lose_part(self, what: str) -> None:
        """Report the loss of a part: raise `FilterLostError` or return, as `on_lost` says."""


class StoredShard(StoredPart):
    """A shard, whose identity the record names."""

    def __init__(self, of: OwningFilter, number: int, record: ShardRecord, wait: Wait | None) -> None:
        super().__init__(shard_record.key(of.name, record.shards, number), FILTER, wait)
        self._of = of
        self._record = record
        self._number = number

    def make(self) -> Op[Seen]:
        new = being_made(self._record.shard).pack()
        return self._seen((yield from self._call(_RESERVE, [new, PART_MS], self.wait)))

    def open(self) -> Op[Handle]:
        """Remember the shard that the record names; the next call compares its identity."""
        yield from self._of.acquire()
        record = self._of.known_record
        if record.spread != self._record.spread:
            raise FilterLostError(f"{self._of.name!r} was replaced by a filter with other shards: {record}")
        head = record.shard_made(record.made[self._number])
        if self._found is None or self._found.generation != head.generation:
            self._learn(head)
        return self.remember(head.identity, planning.stored(head), generation=head.generation)

    def follow(self, record: ShardRecord) -> None:
        """Drop the handle if the record names another shard under this number."""
        head = record.shard_made(record.made[self._number])
        if self.handle is not None and self.handle.identity != head.identity:
            self.reset()

    def report_loss(self, what: str, handle: Handle, *, damaged: bool = False) -> None:  # noqa: ARG002 - as in the base
        """Report a loss as a loss of the whole filter."""
        self.forget()
        self._of.lose_part(what)

    def _recover_shard(self, refusal: Refusal, handle: Handle) -> Op[None]:  # noqa: ARG002 - all are losses
        shard = self._record.place_of(self._of.name, self._number)
        self.report_loss(f"{shard} was expired, evicted, flushed, deleted or replaced", handle)
        yield from ()

    RECOVERY = StoredFilter.RECOVERY | dict.fromkeys(Versioned.RECOVERY, _recover_shard)
