"""The shards of a sharded filter.

A shard is created with a time to live of a minute.  Its creator reads the record again and then *settles* the
shard: the shard gets the record's time to live, and half a minute more.  A shard whose record has vanished by
then expires.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, NoReturn, Protocol

from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.errors import FilterLostError, FilterMismatchError, FilterNotFoundError
from bloomredis.protocol import forms, replies, scripts
from bloomredis.protocol.calls import Wait
from bloomredis.protocol.clock import next_round
from bloomredis.protocol.replies import Refusal
from bloomredis.protocol.steps import Op
from bloomredis.stored import header, planning
from bloomredis.stored.header import BEING_MADE, FILTER, KINDS, Header
from bloomredis.stored.one_key.single import State, StoredFilter
from bloomredis.stored.shards import record as shard_record
from bloomredis.stored.shards.record import ShardRecord
from bloomredis.stored.state.base import Arguments
from bloomredis.stored.state.handle import Description, Handle, ttl_seconds
from bloomredis.stored.state.knowledge import Knowledge
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
    creates: bool
    known: Knowledge
    wait: Wait | None

    @property
    def record(self) -> ShardRecord:
        """The record that the object knows."""

    def acquire(self) -> Op[Handle]:
        """Open the filter if the object has not opened it."""

    def existing(self) -> Op[Handle]:
        """Do the same, but never create the filter."""


class StoredShard(Versioned[Seen]):
    """A shard of a filter; what is known of it is part of what is known of the filter.

    :param placement: of the filter's record; if it is another one, the shards have other items.
    """

    called = KINDS[FILTER]

    def __init__(self, of: OwningFilter, number: int, placement: tuple[int, int]) -> None:
        key = shard_record.key(of.name, placement[0], number)
        super().__init__(key, ttl=0, on_lost="raise", wait=of.wait)
        self.known = of.known
        self.creates = of.creates
        self._of = of
        self._number, self._placement = number, placement
        self._made: tuple[Handle, Handle] | None = None  # the filter's handle, and that of the shard

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

    def _find(self, *, creates: bool = False) -> Op[Seen]:
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

    @property
    def handle(self) -> Handle | None:
        """The handle of the shard that the filter's record names; None if the filter must be opened first."""
        known, made = self.known.seen, self._made
        if known.link.next:
            known = self.known.now()
        whole = known.handle
        if made is not None and made[0] is whole:
            return made[1]
        if whole is None or known.found.record.placement != self._placement:
            return None
        record: ShardRecord = known.found.record
        head = record.shard_made(record.made[self._number])
        counted = made[1].counted[0] if made and made[1].generation == head.generation else 0
        layout = planning.stored(head)
        options: dict[str, Any] = {"generation": head.generation, "counted": counted, "link": whole.link}
        own = self.new_handle(head.identity, layout, **options)
        self._made = whole, own
        return own

    def open(self) -> Op[Handle]:
        """Remember the shard that the record names; the next call compares its identity."""
        return self._open_named(self._of.acquire)

    def existing(self) -> Op[Handle]:
        return self.handle or (yield from self._open_named(self._of.existing))

    def _open_named(self, opening: Callable[[], Op[Handle]]) -> Op[Handle]:
        rounds = None
        while True:
            rounds = yield from next_round(rounds, self._of.name)
            yield from opening()
            own = self.handle
            if own is not None:
                return own
            record = self._of.record
            if record.placement != self._placement:
                raise FilterLostError(
                    f"{self._of.name!r} was replaced by a filter with other shards: {record}",
                    advice="repeat the call, which opens that filter",
                )

    def _handle_of(self, found: Seen) -> NoReturn:
        """Raise `TypeError`: the filter has the handle."""
        raise TypeError(f"{self.name!r} is a shard, which is opened with its filter")

    def current(self) -> Op[list[Description]]:
        """Describe the shard; detect a loss."""
        return self._watched(self._compared)

    def _compared(self, handle: Handle) -> Op[list[Description]]:
        counted = handle.counted[0]  # from replies before this call
        found = yield from self._find()
        if found.head.identity != handle.identity:
            raise Refusal(replies.CHANGED, "")
        self._check_count(found.head.count, counted, handle)
        return [Description(self.key, found.head, found.size, HEADER_BYTES, ttl_seconds(found.ttl))]

    def clear(self) -> NoReturn:
        """Raise `TypeError`: the filter replaces its shards."""
        raise TypeError(f"{self.name!r} is a shard, which is cleared and deleted with its filter")

    def delete(self, arguments: Arguments, keys: Sequence[bytes]) -> NoReturn:
        """Raise `TypeError`: the filter deletes its shards."""
        self.clear()

    def _recover_shard(self, refusal: Refusal, handle: Handle) -> None:
        shard = shard_record.shard_of(self._of.name, self._number)
        self._lose(f"{shard} was expired, evicted, flushed, deleted or replaced", handle.link, in_part=True)

    RECOVERY = StoredFilter.RECOVERY | dict.fromkeys(LOSSES, _recover_shard)


def being_made(head: Header) -> Header:
    """Return the header of a shard that is not settled yet."""
    return replace(head, flags=head.flags | BEING_MADE)
