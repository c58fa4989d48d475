"""Which shards of a sharded filter exist, so that a lost one is never taken for one that never was.

The root has a table with the generation of every shard.  A shard is made when the first item comes to it:
it is created, then its generation is recorded in the table, and only then is it used.  So whoever finds
nothing recorded knows that the shard has no item, whoever finds another generation under the shard's key
than the recorded one knows that it was lost, and of two clients that make a shard at the same time both use
the same one or one of them notices.  A crash in between leaves an empty shard, which the next client
records.  What was left by an earlier root is known by its generation's tag, and is made anew.

Of several servers the first has the root with the table, and each other one a copy without it, which says
which place it has; the copies are made first.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, TypeVar

from bloomredis.arguments import OnLost
from bloomredis.errors import FilterLostError, FilterMismatchError, FilterNotFoundError
from bloomredis.protocol import calls, replies, scripts, steps
from bloomredis.protocol.calls import Wait
from bloomredis.protocol.gather import at, gather, unless_failed
from bloomredis.protocol.replies import Refusal, unhex
from bloomredis.protocol.steps import Op
from bloomredis.stored import planning, shard_record
from bloomredis.stored.base import Arguments, Description, Handle, ttl_seconds
from bloomredis.stored.header import Header
from bloomredis.stored.shard_record import ShardRecord
from bloomredis.stored.single import StoredFilter

T = TypeVar("T")
_ROOT, _RECORD, _RESERVE, _DELETE = map(scripts.load, ("reserve_root", "record_shard", "reserve", "delete"))
_NONE = bytes(8)
_AT_ONCE = 256
"""Shards that are looked at in one round trip."""


class Found(NamedTuple):
    """A root as it is stored, its table, and its time to live in ms, negative for ever."""

    record: ShardRecord
    table: list[bytes]
    ttl: int


class StoredShards(StoredFilter):
    """The root of a sharded filter."""

    is_one_bitmap: ClassVar[bool] = False

    def __init__(
        self,
        name: str,
        *,
        plan: Callable[..., ShardRecord] | None,
        layout: str | None,
        wanted: Mapping[str, int | None],
        ttl: int,
        on_lost: OnLost,
        wait: Wait | None,
    ) -> None:
        self._plan = plan
        self._wanted = wanted
        self._shards: dict[int, StoredShard] = {}
        self._table: list[bytes] = []
        self._until = 0.0  # it expires, by the clock of this process; 0 for never
        self.record: ShardRecord | None = None
        super().__init__(name, new=None, layout=layout, ttl=ttl, on_lost=on_lost, wait=wait)
        self.over(1)

    def over(self, servers: int) -> None:
        """Spread the shards over so many servers; `ValueError` if there are fewer shards."""
        self.servers = servers
        self._planned = self._plan(servers=servers) if self._plan else None
        self._new = self._planned.head if self._planned else None

    def shard(self, number: int) -> StoredShard:
        """Return what is known of a shard."""
        if number not in self._shards:
            self._shards.setdefault(number, StoredShard(self, number))
        return self._shards[number]

    def reset(self) -> None:
        super().reset()
        for shard in list(self._shards.values()):
            shard.reset()

    @property
    def is_lost(self) -> bool:
        """Whether a loss was noticed and the caller has yet to deal with it."""
        return self._lost is not None

    def open(self, *, noticed: bool = False) -> Op[Handle]:
        """Create the root if it is missing and parameters were given; check it; know it from now on.

        :param noticed: the caller knows already of what was lost.
        """
        if self._lost:
            raise FilterLostError(self._lost)
        found = yield from self._look(0)
        if found is None and self._planned is None:
            raise self.explained(Refusal(replies.MISSING, ""))
        new = found.record if found else self._planned
        assert new is not None  # noqa: S101 - one of the two is there
        yield from self._copies(new, is_new=found is None or noticed)
        if found is None:
            found = yield from self._ask(0, _renewed(new))
            self._check(found.record, 0, new)
        return self._know(found)

    def _know(self, found: Found) -> Handle:
        self._lost = None
        if self.record is None or self.record.head.generation != found.record.head.generation:
            for shard in list(self._shards.values()):
                shard.reset()
        if self.record is not None and _spread(self.record) != _spread(found.record):
            self._shards = {}  # they have other keys
        self.record, self._table = found.record, found.table
        self._note(found.ttl)
        return self.remember(found.record.head.identity, planning.stored(found.record.head))

    def _note(self, ttl: int) -> None:
        self._until = time.monotonic() + ttl / 1000 if ttl >= 0 else 0.0

    @property
    def remaining(self) -> int:
        """Milliseconds to live of a shard that is made now, 0 for ever."""
        return max(1, round((self._until - time.monotonic()) * 1000)) if self._until else 0

    # -- what the servers say

    def _on(self, place: int, operation: Op[T]) -> Op[T]:
        return at(place if self.servers > 1 else None, operation)

    def _ask(self, place: int, new: ShardRecord | None = None, replaced: bytes = b"") -> Op[Found]:
        """Read the root or the copy at a place, after making one if the key is free or has `replaced`."""
        arguments: Arguments = [b"" if new is None else replace(new, place=place).pack(), self._ttl, replaced]
        text, ttl = yield from self._on(
            place, self._call(_ROOT, arguments, None if new is None else self.wait)
        )
        try:
            record, table = shard_record.parse(unhex(text))
        except ValueError as error:
            raise FilterMismatchError(f"{self.name!r} holds no sharded filter: {error}") from None
        return Found(record, table, ttl)

    def _look(self, place: int, like: ShardRecord | None = None) -> Op[Found | None]:
        """Read and check the root or the copy at a place, None if there is none."""
        try:
            found = yield from self._ask(place)
        except FilterNotFoundError:
            return None
        self._check(found.record, place, like)
        return found

    def _copies(self, record: ShardRecord, *, is_new: bool) -> Op[None]:
        """Check the copies of all other servers; make those that are missing."""
        places = range(1, self.servers)
        copies = unless_failed((yield from gather(self._look(place, record) for place in places)))
        missing = [place for place, copy in zip(places, copies, strict=True) if copy is None]
        if missing and not is_new:
            self._tell(f"{self.name!r} has vanished from server {missing[0]} of {list(range(self.servers))}")
        unless_failed((yield from gather(self._ask(place, record) for place in missing)))

    def _check(self, found: ShardRecord, place: int, like: ShardRecord | None) -> None:
        if (found.servers, found.place) != (self.servers, place):
            raise FilterMismatchError(
                f"{self.name!r} was made on {found.servers} servers, and the one in place {place} of "
                f"{self.servers} has its place {found.place} (counted from 0): give a client of each, in the "
                "order in which it was made"
            )
        self._check_parameters(found.head)
        for field, value in self._wanted.items():
            if value is not None and getattr(found, field) != value:
                raise FilterMismatchError(
                    f"{self.name!r} has {field} {getattr(found, field)}, not {value}; open it with "
                    "ShardedBloomFilter.open(), which takes what is stored, or use another name"
                )
        if like is not None and _parameters(found) != _parameters(like):
            raise FilterMismatchError(
                f"{self.name!r} is another filter on server {place}: it has {_parameters(found)}, not "
                f"{_parameters(like)}; delete the key there, or use another name"
            )

    def refreshed(self) -> Op[Found]:
        """Read the root, if it is still the one that this object knows."""
        handle = self.handle or (yield from self.open())
        try:
            found = yield from self._ask(0)
        except (FilterNotFoundError, FilterMismatchError) as error:
            yield from self._lose(str(error), handle)
        else:
            if found.record.head.identity == handle.identity:
                self._table = found.table
                return found
            yield from self._lose(f"{self.name!r} was cleared or replaced", handle)
        return (yield from self._ask(0))

    def current(self) -> Op[list[Description]]:
        found = yield from self.refreshed()
        size = shard_record.RECORD_BYTES + 8 * len(found.table)
        return [
            Description(self.key, found.record.head, size, shard_record.RECORD_BYTES, ttl_seconds(found.ttl))
        ]

    # -- the table

    def recorded(self, number: int) -> Op[bytes]:
        """Return the generation of a shard, b"" if it has never been made."""
        return self._table[number] or (yield from self.record_shard(number))

    def record_shard(self, number: int, generation: bytes = b"", replaced: bytes = _NONE) -> Op[bytes]:
        """Record a shard's generation in the place of another one; return the one that is recorded now.

        :raises Refusal: the root is not the one that this object knows.
        """
        handle = self.handle or (yield from self.open())
        arguments: Arguments = [handle.identity, number, generation, replaced]
        try:
            text, ttl = yield from self._on(
                0, calls.call(_RECORD, [self.key], arguments, self.wait if generation else None)
            )
        except replies.NoReply as unanswered:
            raise unanswered.__cause__ or unanswered from None
        entry = unhex(text)
        self._table[number] = b"" if entry == _NONE else entry
        self._note(ttl)
        return self._table[number]

    def made(self) -> list[int]:
        """Return the numbers of the shards that have been made, as far as is known."""
        return [number for number, entry in enumerate(self._table) if entry]

    def consistently(self, operation: Callable[[], Op[T]]) -> Op[T]:
        """Run an operation on the root that this object knows; again, where that is another one by now."""
        while True:
            handle = self.handle or (yield from self.open())
            try:
                return (yield from operation())
            except Refusal as refusal:
                met = refusal
            yield from self._recover(met, handle)

    # -- losses

    def shard_lost(self, number: int) -> None:
        """Raise `FilterLostError`, or say that a shard was lost in the way that `on_lost` says."""
        self._tell(f"shard {number} of {self.name!r} was expired, evicted, flushed, deleted or replaced")

    def _lose(self, what: str, handle: Handle) -> Op[Handle]:
        before = self.record
        now = yield from super()._lose(what, handle)
        if before is not None and self.record is not None and _spread(before) != _spread(self.record):
            self.handle = None
            raise FilterLostError(f"{what}, and what is there now has other shards: {self.record}")
        return now

    # -- the filter as a whole

    def clear(self) -> Op[None]:
        """Begin with a new root, whose shards have all yet to be made; then delete the old shards."""
        self.reset()
        while True:
            found = yield from self._look(0)
            if found is None:
                yield from self.open()
                return
            new = _renewed(found.record)
            now = yield from self._ask(0, new, found.record.head.identity)
            if now.record.head.generation == new.head.generation:
                break
        yield from self._copies(new, is_new=True)
        self._know(now)
        yield from self._sweep(new, lambda generation: generation[:4] != new.tag)

    def delete(self, arguments: Arguments, keys: Sequence[bytes]) -> Op[bool]:
        """Delete the root, then the shards; without a root, shards that are left of one."""
        self.reset()
        found = None
        while (found := (yield from self._look(0))) is not None:
            identity = found.record.head.identity
            try:
                yield from self._on(
                    0, calls.call(_DELETE, [self.key, *keys], [identity, *arguments], self.wait)
                )
                break
            except Refusal as refusal:
                if refusal.word not in (replies.CHANGED, replies.MISSING):
                    raise self.explained(refusal) from refusal
        record = found.record if found else self._planned
        if record is not None:
            yield from self._sweep(record, lambda generation: found is None or generation[:4] == record.tag)
            places = range(1, self.servers)
            unless_failed((yield from gather(self._delete_copy(place) for place in places)))
        return found is not None

    def _delete_copy(self, place: int) -> Op[None]:
        if (found := (yield from self._look(place))) is not None:
            yield from self._on(place, self._call(_DELETE, [found.record.head.identity], self.wait))

    def expire(self, ttl: int) -> Op[None]:
        """Let everything expire in `ttl` ms, the root last."""
        found = yield from self.refreshed()
        numbers = [number for number, entry in enumerate(found.table) if entry]
        yield from self._each(found.record, numbers, lambda shard: shard.expire(ttl))
        for place in range(1, self.servers):
            yield steps.OnServer(place, ("PEXPIRE", self.key, ttl))
        yield from self._on(0, super().expire(ttl))
        self._note(ttl)

    def _sweep(self, record: ShardRecord, doomed: Callable[[bytes], bool]) -> Op[None]:
        """Delete all shards with a generation that is doomed."""
        yield from self._each(record, range(record.shards), lambda shard: shard.drop(doomed), record)

    def _each(
        self,
        record: ShardRecord,
        numbers: Iterable[int],
        call: Callable[[StoredShard], Op[Any]],
        of: ShardRecord | None = None,
    ) -> Op[None]:
        def one(number: int) -> Op[Any]:
            shard = self.shard(number) if of is None else StoredShard(self, number, of)
            return self._on(record.server(number), call(shard))

        unless_failed((yield from gather(map(one, numbers), most=_AT_ONCE)))


class StoredShard(StoredFilter):
    """A shard, which exists if the root says so."""

    def __init__(self, of: StoredShards, number: int, record: ShardRecord | None = None) -> None:
        record = record or of.record
        assert record is not None  # noqa: S101 - shards are known from a root
        name = shard_record.key(of.name, record.shards, number)
        super().__init__(name, new=None, layout=None, ttl=0, on_lost=of._on_lost, wait=of.wait)  # noqa: SLF001 - a part of it
        self._of = of
        self._number = number

    def open(self, *, noticed: bool = False) -> Op[Handle]:
        """Make the shard if it has never been made; check it; know it from now on."""
        return self._of.consistently(lambda: self._open(noticed=noticed))

    def is_absent(self) -> Op[bool]:
        """Return whether the shard has never been made, and so has no item."""
        if self.handle is not None:
            return False
        return not (yield from self._of.consistently(lambda: self._of.recorded(self._number)))

    def drop(self, doomed: Callable[[bytes], bool]) -> Op[None]:
        """Delete the shard if it has a generation that is doomed."""
        while (found := (yield from self._found())) is not None and doomed(found.generation):
            try:
                yield from calls.call(_DELETE, [self.key], [found.identity], self.wait)
            except Refusal as refusal:
                if refusal.word not in (replies.CHANGED, replies.MISSING):
                    raise self.explained(refusal) from refusal

    def _found(self) -> Op[Header | None]:
        try:
            return (yield from self.describe()).header
        except (FilterNotFoundError, FilterMismatchError):
            return None

    def _open(self, *, noticed: bool = False) -> Op[Handle]:
        recorded = yield from self._of.recorded(self._number)
        if not recorded:
            return (yield from self._make(_NONE))
        found = yield from self._found()
        if found is not None and found.generation == recorded:
            return self._accept(found)
        if not noticed:
            self._of.shard_lost(self._number)
        return (yield from self._make(recorded))

    def _make(self, replaced: bytes) -> Op[Handle]:
        """Create the shard unless somebody else has, and record it; then it may be used."""
        while True:
            record = self._of.record
            assert record is not None  # noqa: S101 - it is open
            template = replace(record.shard, generation=record.tag + os.urandom(4)).pack()
            found = self.read(
                (yield from self._call(_RESERVE, [template, self._of.remaining], self.wait))
            ).header
            if found.generation[:4] != record.tag:
                yield from self.drop(lambda generation, tag=record.tag: generation[:4] != tag)  # type: ignore[misc]  # mypy wants no defaults
                continue
            recorded = yield from self._of.record_shard(self._number, found.generation, replaced)
            if recorded == found.generation:
                return self._accept(found)
            self._of.shard_lost(self._number)  # it was made, recorded and lost meanwhile
            replaced = recorded or _NONE

    def _lose(self, what: str, handle: Handle) -> Op[Handle]:  # noqa: ARG002 - what is the same for all shards
        self.handle = None
        if self._on_lost == "raise":
            self._of.shard_lost(self._number)
        return (yield from self._of.consistently(lambda: self._renewed(handle.generation)))

    def _renewed(self, lost: bytes) -> Op[Handle]:
        if (yield from self._of.record_shard(self._number)) != lost:  # somebody was faster
            return (yield from self._open())
        self._of.shard_lost(self._number)
        return (yield from self._make(lost))


def _renewed(record: ShardRecord) -> ShardRecord:
    return replace(record, head=replace(record.head, generation=os.urandom(8)))


def _spread(record: ShardRecord) -> tuple[int, ...]:
    return record.shards, record.seed, record.servers


def _parameters(record: ShardRecord) -> tuple[object, ...]:
    head = record.head
    return (
        head.capacity,
        head.error_rate,
        head.layout,
        head.num_bits,
        head.num_hashes,
        record.shards,
        record.seed,
    )
