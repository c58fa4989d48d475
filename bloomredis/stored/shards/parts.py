"""The shards of a sharded filter.

A shard is created with a time to live of a minute.  Its creator reads the record again and then *settles* the
shard: the shard gets the record's time to live, and half a minute more.  A shard whose record has vanished by
then expires.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple, NoReturn, Protocol

from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.errors import FilterLostError, FilterMismatchError, FilterNotFoundError
from bloomredis.protocol import forms, replies, scripts
from bloomredis.protocol.calls import Wait
from bloomredis.protocol.replies import Refusal
from bloomredis.protocol.steps import Op
from bloomredis.stored import header, planning
from bloomredis.stored.header import BEING_MADE, FILTER, KINDS, Header
from bloomredis.stored.one_key.single import State, StoredFilter
from bloomredis.stored.shards import record as shard_record
from bloomredis.stored.shards.record import ShardRecord
from bloomredis.stored.state.base import Arguments
from bloomredis.stored.state.handle import Description, Handle, ttl_seconds
from bloomredis.stored.state.versioned import LOSSES, Versioned

PART_MS: Final = 60_000
"""The time to live of a shard until its creator has read the record again."""
OUTLIVED_MS: Final = PART_MS // 2
"""The time for which shards outlive a record that expires: shards that stay longer tell of its loss."""
_RESERVE, _DESCRIBE = (scripts.load_script(verb, forms.state) for verb in ("reserve", "describe"))
_DELETE, _SETTLE = (scripts.load_script(verb, forms.integer) for verb in ("delete", "settle_part"))


class Seen(NamedTuple):
    """A stored shard: its header, its length, and its time to live in ms, negative if it does not expire."""

    head: Header
    size: int
    ttl: int

    @property
    def is_being_made(self) -> bool:
        """True if the shard expires unless a client settles it."""
        return bool(self.head.flags & BEING_MADE)

    @property
    def stays(self) -> bool:
        """True if the shard is settled and does not expire within a minute."""
        return not self.is_being_made and not 0 <= self.ttl <= PART_MS


class OwningFilter(Protocol):
    """The sharded filter that a shard belongs to."""

    name: str
    handle: Handle | None
    creates: bool

    @property
    def cached_record(self) -> ShardRecord:
        """The record that the object knows."""

    def acquire(self) -> Op[Handle]:
        """Open the filter if the object has not opened it."""

    def existing(self) -> Op[Handle]:
        """Do the same, but never create the filter."""

    def lose_part(self, what: str) -> None:
        """Report the loss of a shard: raise `FilterLostError` or return, as `on_lost` says."""

    def raise_loss(self, lost: FilterLostError) -> NoReturn:
        """Tell a caller of a loss."""


class StoredShard(Versioned[Seen]):
    """A shard as one record describes it; the filter's object may know a newer record by now."""

    called = KINDS[FILTER]

    def __init__(self, of: OwningFilter, number: int, record: ShardRecord, wait: Wait | None) -> None:
        key = shard_record.key(of.name, record.shards, number)
        super().__init__(key, ttl=0, on_lost="raise", wait=wait)
        self._of = of
        self.creates = of.creates
        self._record = record
        self._number = number
        self._generation = b""  # of the shard in which `counted` items were seen

    # -- making the filter

    def make(self, new: bytes) -> Op[Seen]:
        """Create the shard with this header unless the key exists; return the stored shard."""
        return self._seen((yield from self._call(_RESERVE, [new, PART_MS], self.wait)))

    def seen(self) -> Op[Seen | None]:
        """Return the stored shard of this or another record; None if the key is missing.

        :raises FilterMismatchError: the key holds no shard that this release can read.
        """
        try:
            return (yield from self._find())
        except FilterNotFoundError:
            return None

    def _find(self, *, creates: bool = False) -> Op[Seen]:  # noqa: ARG002 - `make` creates shards
        return self._seen((yield from self._call(_DESCRIBE, [])))

    def _seen(self, reply: State) -> Seen:
        data, size, ttl = reply
        try:
            head = header.parse(data)
        except ValueError as error:
            raise FilterMismatchError(
                f"{self.name!r} is no shard of a sharded filter: {error}",
                advice="delete the key, or use another name",
            ) from None
        if not head.has_size(size):
            raise FilterMismatchError(
                f"{self.name!r} is damaged: it has {size} bytes, its header says {head.size_bytes}",
                advice="delete the key or restore it",
            )
        return Seen(head, size, ttl)

    def settle(self, seen: Seen, ttl: int) -> Op[bool]:
        """Let the shard live for `ttl` ms from now, without limit for 0; do nothing if it is settled.

        :returns: False if the shard has vanished, or another client has settled it meanwhile.
        """
        if not seen.is_being_made:
            return True
        return (yield from self.if_unchanged(_SETTLE, [self.key], [seen.head.identity, ttl])) is not None

    def drop(self, head: Header) -> Op[None]:
        """Delete the shard if it has this header, even if another client has settled it meanwhile."""
        deleted = yield from self.if_unchanged(_DELETE, [self.key], [head.identity])
        if deleted is None and head.flags & BEING_MADE:
            settled = replace(head, flags=head.flags & ~BEING_MADE)
            yield from self.if_unchanged(_DELETE, [self.key], [settled.identity])

    # -- using it

    def open(self) -> Op[Handle]:
        """Remember the shard that the record names; the next call compares its identity."""
        return self._open_named(self._of.acquire())

    def existing(self) -> Op[Handle]:
        return self.handle or (yield from self._open_named(self._of.existing()))

    def _open_named(self, opening: Op[Handle]) -> Op[Handle]:
        yield from opening
        record = self._of.cached_record
        if record.placement != self._record.placement:
            raise FilterLostError(
                f"{self._of.name!r} was replaced by a filter with other shards: {record}",
                advice="repeat the call, which opens that filter",
            )
        head = record.shard_made(record.made[self._number])
        if self._generation != head.generation:
            self._generation, self.counted = head.generation, 0
        return self._accept(Seen(head, HEADER_BYTES, 0))

    def _accept(self, found: Seen) -> Handle:
        head, whole = found.head, self._of.handle
        return self.remember(
            head.identity,
            planning.stored(head),
            generation=head.generation,
            ends=None if whole is None else whole.ends,  # a loss of the filter is one of each shard
        )

    def current(self) -> Op[list[Description]]:
        """Describe the shard; detect a loss."""
        return self._watched(self._compared)

    def _compared(self, handle: Handle) -> Op[list[Description]]:
        counted = self.counted  # from replies before this call
        found = yield from self._find()
        if found.head.identity != handle.identity:
            raise Refusal(replies.CHANGED, "")
        self._check_count(found.head.count, counted, handle)
        return [Description(self.key, found.head, found.size, HEADER_BYTES, ttl_seconds(found.ttl))]

    def clear(self) -> NoReturn:
        """Raise `TypeError`: the filter replaces its shards."""
        raise TypeError(f"{self.name!r} is a shard, which is cleared and deleted with its filter")

    def delete(self, arguments: Arguments, keys: Sequence[bytes]) -> NoReturn:  # noqa: ARG002 - it always raises
        """Raise `TypeError`: the filter deletes its shards."""
        self.clear()

    def follow(self, record: ShardRecord) -> None:
        """Drop the handle if the record names another shard under this number."""
        head = record.shard_made(record.made[self._number])
        if self.handle is not None and self.handle.identity != head.identity:
            self.reset()

    def report_loss(self, what: str, handle: Handle, *, damaged: bool = False) -> None:  # noqa: ARG002 - as in the base
        """Report a loss as a loss of the whole filter."""
        self.forget()
        self._of.lose_part(what)

    def raise_loss(self, lost: FilterLostError) -> NoReturn:
        self._of.raise_loss(lost)

    def _recover_shard(self, refusal: Refusal, handle: Handle) -> Op[None]:  # noqa: ARG002 - all are losses
        shard = shard_record.shard_of(self._of.name, self._number)
        self.report_loss(f"{shard} was expired, evicted, flushed, deleted or replaced", handle)
        yield from ()

    RECOVERY = StoredFilter.RECOVERY | dict.fromkeys(LOSSES, _recover_shard)


def being_made(head: Header) -> Header:
    """Return the header of a shard that is not settled yet."""
    return replace(head, flags=head.flags | BEING_MADE)
