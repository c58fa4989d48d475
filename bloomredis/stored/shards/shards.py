"""A sharded filter: its record, and the parts that the record names.

The record stores the time at which each part was created.  So its reader knows the identity of every shard,
and each call compares it.  To create a filter, a client first writes the record in a state that says that its
parts are being created, and then takes these steps:

1. Create the missing parts, empty, with a time to live of a minute.
2. Read the record.  If it has changed, begin again with the stored record.
3. If parts of an earlier record were found, delete them and begin again.
4. Settle the parts: give them the record's time to live.
5. Write the times of the parts and the state "in use" into the record.

Every client that opens a record not in use takes these steps, so a client may die at any of them.  A client
deletes or settles a part only if it saw the part before it read the record.  Each part has its own time of
creation, so no identity is used twice: a record in use never names a part that was created late.

`clear()` writes a record whose parts are being created.  So does a client that opens the filter after its
caller has handled the loss of a shard.  `delete()` writes a record in the state "deleted", deletes the parts,
and then the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar, Unpack

from bloomredis.errors import (
    FilterMismatchError,
    FilterNotFoundError,
    RefusedOutcomeUnknownError,
    ServerRefusedError,
)
from bloomredis.protocol import forms, replies, scripts
from bloomredis.protocol.gather import at, gather, unless_failed
from bloomredis.protocol.replies import Refusal
from bloomredis.protocol.steps import Op
from bloomredis.stored import encoding, header, planning
from bloomredis.stored.header import Header
from bloomredis.stored.one_key.single import StoredFilter
from bloomredis.stored.shards import record as shard_record
from bloomredis.stored.shards.parts import RESERVE_RECORD, Seen, StoredCopy, StoredPart, StoredShard
from bloomredis.stored.shards.record import DELETED, IN_USE, MAKING, NEW, RESTORED, ShardRecord
from bloomredis.stored.state.base import Arguments
from bloomredis.stored.state.handle import Description, Handle, ttl_seconds
from bloomredis.stored.state.versioned import Versioned

T = TypeVar("T")
_SETTLE: Final = scripts.load_script("settle_record", forms.record)
_DELETE, _EXPIRE = (scripts.load_script(verb, forms.integer) for verb in ("delete", "expire"))
_SHARED: Final = ("capacity", "error_rate", "layout", "num_bits", "num_hashes")
_parameters = attrgetter(*(f"head.{name}" for name in _SHARED), "shards", "seed")
_AT_ONCE: Final = 256
"""The most parts that are read or created in one round trip."""


class Found(NamedTuple):
    """A stored record; `ttl` is its time to live in ms, negative if it does not expire."""

    record: ShardRecord
    ttl: int


class StoredShards(StoredFilter):
    """A sharded filter on one server, on a cluster, or on each of several servers."""

    def __init__(
        self,
        name: str,
        *,
        plan: Callable[..., ShardRecord] | None,
        layout: str | None,
        wanted: Mapping[str, int | None],
        **options: Unpack[planning.StorageOptions],
    ) -> None:
        super().__init__(name, new=None, layout=layout, kind=shard_record.KIND, **options)
        self._plan = plan
        self._wanted: dict[str, object] = {key: value for key, value in wanted.items() if value is not None}
        self._shards: dict[int, StoredShard] = {}
        self._noticed = False  # a loss was detected, and the filter was not opened since
        self.record: ShardRecord | None = None
        self.over(1)

    def over(self, servers: int) -> None:
        """Spread the shards over this number of servers; raise `ValueError` if it exceeds the shards."""
        self.servers = servers
        self._planned = self._plan(servers=servers).encoded(self.encoding or 0) if self._plan else None
        self._new = self._planned.head if self._planned else None

    @property
    def head(self) -> Header | None:
        return self.record.head if self.record else super().head

    @property
    def known_record(self) -> ShardRecord:
        """The record that this object knows; the filter must be open."""
        if self.record is None:
            raise RuntimeError(f"{self.name!r} has not been opened")
        return self.record

    @property
    def is_lost(self) -> bool:
        """True if a loss was reported and the caller has not handled it yet."""
        return self._lost is not None

    def shard(self, number: int) -> StoredShard:
        """Return the state of a shard."""
        if number not in self._shards:
            self._shards.setdefault(number, StoredShard(self, number, self.known_record, self.wait))
        return self._shards[number]

    def reset(self) -> None:
        super().reset()
        for shard in list(self._shards.values()):
            shard.reset()

    # -- the record

    def _on(self, place: int, operation: Op[T]) -> Op[T]:
        return at(place if self.servers > 1 else None, operation)

    def _ask(self, new: ShardRecord | None = None, replaced: bytes = b"") -> Op[Found]:
        """Check and return the stored record.

        :param new: a record to write first if the key is missing or holds the identity `replaced`.
        """
        arguments: Arguments = [b"" if new is None else new.pack(), self._ttl, replaced]
        data, ttl = yield from self._on(0, self._call(RESERVE_RECORD, arguments, self.wait if new else None))
        return Found(self._checked(data), ttl)

    def _look(self) -> Op[Found | None]:
        """Check and return the stored record; None if the key is missing."""
        try:
            return (yield from self._ask())
        except FilterNotFoundError:
            return None

    def _is_stored(self, record: ShardRecord) -> Op[bool]:
        """Return whether the stored record is still this one."""
        now = yield from self._look()
        return now is not None and now.record == record

    def _checked(self, data: bytes, place: int = 0) -> ShardRecord:
        """Parse the record, or the copy at a place; raise if it differs from the wanted parameters."""
        try:
            record = shard_record.parse(data)
        except ValueError as error:
            raise header.unusable(self.name, error) from None
        if (record.servers, record.place) != (self.servers, place):
            raise FilterMismatchError(
                f"{self.name!r} was created on {record.servers} servers; client {place} of {self.servers} is "
                f"that of server {record.place} (counted from 0): give a client of each server, in the order "
                "in which the filter was created"
            )
        self._check_parameters(record.head)
        encoding.check_encoding(self.name, record.head.encoding, self.encoding)
        self.compare({field: getattr(record, field) for field in self._wanted}, self._wanted)
        return record

    # -- opening

    def reopen(self) -> Op[Handle]:
        """Open the filter again, lost or not; check each part."""
        noticed = self.is_lost
        self.reset()
        return self._open_by(partial(self._find, noticed=noticed, looks=True), stands=False)

    def _find(self, *, noticed: bool = False, looks: bool = False) -> Op[Found]:  # type: ignore[override]  # goes to `_accept` alone
        """Create the filter if it is missing and parameters were given; return its record, which is in use.

        :param noticed: the caller knows of a loss.
        :param looks: check each part.
        """
        noticed = noticed or self._noticed
        while True:
            found, has_copies = yield from self._first_look()
            record = found.record
            if record.state != IN_USE:
                done = yield from self._go_on(found, noticed=noticed)
                if done is not None:
                    return done
                continue
            missing = "" if has_copies and not (noticed or looks) else (yield from self._missing(record))
            if not missing:
                break
            if (yield from self._is_stored(record)):
                if not noticed:
                    self._apply_on_lost(f"{missing} has vanished", used=self.record is not None)
                    noticed = True
                yield from self._ask(record.unmade(), record.head.identity)
        self._check_ttl(found.ttl)
        return found

    def _look_everywhere(self) -> Op[tuple[Found | None, list[Seen | None]]]:
        """Return the record and its copies, in one round trip; raise if one has other parameters."""
        copies = (self._on(place, self._copy(place).seen()) for place in range(1, self.servers))
        looks: tuple[Op[Any], ...] = (self._look(), *copies)
        found, *seen = unless_failed((yield from gather(looks)))
        return found, seen

    def _first_look(self) -> Op[tuple[Found, bool]]:
        """Return the record, which is first written if it is missing, and whether all its copies exist."""
        found, seen = yield from self._look_everywhere()
        if found is None:
            found = yield from self._ask(self._planned and self._planned.renewed(NEW))
        return found, all(each and found.record.owns(each.head) for each in seen)

    def _accept(self, found: Found) -> Handle:  # type: ignore[override]  # see `_find`
        record, before = found.record, self.record
        if before is not None and before.spread != record.spread:
            self._shards = {}  # the new record's shards have other keys
        for shard in list(self._shards.values()):
            shard.follow(record)
        self.record, self._noticed = record, False
        head = record.head
        return self.remember(head.identity, planning.stored(head), generation=head.generation)

    # -- parts

    def _parts(self, record: ShardRecord) -> list[StoredPart]:
        """Return all parts of a record, in the order of its table."""
        shards = (StoredShard(self, number, record, self.wait) for number in range(record.shards))
        return [*shards, *(self._copy(place, record) for place in range(1, record.servers))]

    def _copy(self, place: int, record: ShardRecord | None = None) -> StoredCopy:
        """Return the copy of a record at a place; without a record the copy is read-only."""

        def check(data: bytes) -> ShardRecord:
            copy = self._checked(data, place)
            if record is not None and _parameters(copy) != _parameters(record):
                raise FilterMismatchError(
                    f"{self.name!r} is another filter on server {place}: it has {_parameters(copy)}, not "
                    f"{_parameters(record)}; delete the key there, or use another name"
                )
            return copy

        return StoredCopy(self.name, record.new_copy(place).pack() if record else b"", self.wait, check)

    def _each(self, record: ShardRecord, calls: Iterable[tuple[int, Op[T]]]) -> Op[list[T]]:
        """Run operations, each on the server of the part with its number; return the answers in order."""
        placed = (self._on(record.server(number), operation) for number, operation in calls)
        return unless_failed((yield from gather(placed, most=_AT_ONCE)))

    def each_shard(self, call: Callable[[StoredShard], Op[T]]) -> Op[list[T]]:
        """Run an operation for each shard, on the shard's server; return the answers in order."""
        record = self.known_record
        return self._each(record, ((number, call(self.shard(number))) for number in range(record.shards)))

    def _missing(self, record: ShardRecord) -> Op[str]:
        """Return the name of a part that differs from the record; "" if all parts match it."""
        looks = ((number, part.seen()) for number, part in enumerate(self._parts(record)))
        parts = yield from self._each(record, looks)
        for number, (seen, made) in enumerate(zip(parts, record.made, strict=True)):
            if seen is None or seen.is_being_made or not record.owns(seen.head) or _time(seen) != made:
                return record.place_of(self.name, number)
        return ""

    def _go_on(self, found: Found, *, noticed: bool) -> Op[Found | None]:
        """Finish the work that a record's state asks for; return the record if it is in use now, else None.

        :param noticed: the caller knows of the loss of an earlier record.
        """
        if found.record.state == DELETED:
            yield from self._end(found.record)
            return None
        return (yield from self._make(found, noticed=noticed))

    def _make(self, found: Found, *, noticed: bool) -> Op[Found | None]:
        """Create a record's missing parts and set it in use; return None if the caller must look again."""
        record, parts = found.record, self._parts(found.record)
        restored = record.made if record.state == RESTORED else (0,) * len(parts)
        ways = (part.seen() if made else part.make() for part, made in zip(parts, restored, strict=True))
        met: list[Seen | None] = yield from self._each(record, enumerate(ways))
        if not (yield from self._is_stored(record)):
            return None
        there = {number: seen for number, seen in enumerate(met) if seen is not None}
        if any(made and _time(there.get(number)) != made for number, made in enumerate(restored)):
            # A restored shard has vanished or changed, and the filter was never in use: delete the rest.
            yield from self._ask(record.renewed(DELETED), record.head.identity)
            return None
        others = {number: seen for number, seen in there.items() if not record.owns(seen.head)}
        if others:
            if record.state == NEW and not noticed and any(seen.stays for seen in others.values()):
                self._apply_on_lost(
                    f"the record of {record.place_of(self.name, -1)} has vanished", used=False
                )
            yield from self._drop(record, others)
            return None
        ttl = 0 if found.ttl < 0 else max(1, found.ttl)
        settled = ((number, parts[number].settle(seen, ttl)) for number, seen in there.items())
        if not all((yield from self._each(record, settled))):
            return None
        return (yield from self._settle(replace(record, made=tuple(map(_time, there.values())))))

    def _drop(self, record: ShardRecord, seen: Mapping[int, Seen]) -> Op[None]:
        """Delete parts that were seen under a record's keys, unless they have changed."""
        parts = self._parts(record)
        yield from self._each(
            record, ((number, parts[number].drop(each.head)) for number, each in seen.items())
        )

    def _settle(self, record: ShardRecord) -> Op[Found | None]:
        """Write the times of all parts and the state "in use"; return None if the record has changed."""
        arguments: Arguments = [record.head.identity, record.table]
        reply = yield from self._on(0, self._as_known(_SETTLE, [self.key], arguments))
        if reply is None:
            return None
        data, ttl = reply
        found = Found(self._checked(data), ttl)
        return found if found.record.state == IN_USE else None

    # -- losses

    def lose_part(self, what: str) -> None:
        """Report the loss of a part, once for each time that the filter was opened."""
        self._noticed = True
        if self.handle is not None:
            self.report_loss(what, self.handle)

    def report_loss(self, what: str, handle: Handle, *, damaged: bool = False) -> None:
        self._noticed = True
        super().report_loss(what, handle, damaged=damaged)

    def _notice_loss(self, what: str, handle: Handle) -> Op[None]:
        """Report a loss; open the stored filter if `on_lost` does not raise."""
        self.report_loss(what, handle)
        yield from self.acquire()

    def _recover_record(self, refusal: Refusal, handle: Handle) -> Op[None]:
        return self._notice_loss(self.loss(refusal.word), handle)

    RECOVERY = dict.fromkeys(Versioned.RECOVERY, _recover_record)

    # -- the filter as a whole

    def refreshed(self) -> Op[Found]:
        """Read the record; detect a loss."""
        return self._watched(self._same_record)

    def _same_record(self, handle: Handle) -> Op[Found]:
        found = yield from self._ask()
        if found.record.head.identity != handle.identity:
            raise Refusal(replies.CHANGED, "")
        return found

    def current(self) -> Op[list[Description]]:
        found = yield from self.refreshed()
        size = shard_record.RECORD_BYTES + len(found.record.table)
        return [
            Description(self.key, found.record.head, size, shard_record.RECORD_BYTES, ttl_seconds(found.ttl))
        ]

    def clear(self) -> Op[None]:
        """Write a record with a new generation, and replace the parts."""
        self.reset()
        if not (yield from self._write_anew(MAKING))[0]:
            raise self.explained(Refusal(replies.MISSING, ""))
        with self._begun("clear"):
            yield from self._open_by(partial(self._find, noticed=True), stands=False)

    def delete(self, arguments: Arguments, keys: Sequence[bytes]) -> Op[bool]:  # noqa: ARG002 - the record replaces receipts
        """Write a record in the state "deleted", delete the parts, and then the record."""
        self.reset()
        record, existed = yield from self._write_anew(DELETED)
        if record is not None:
            with self._begun("delete"):
                yield from self._end(record)
        return existed

    @contextmanager
    def _begun(self, verb: str) -> Iterator[None]:
        """Turn a server's refusal into an error which says that the call was done in part."""
        try:
            yield
        except ServerRefusedError as error:
            message = f"{verb}() of {self.name!r} was done in part, so call it again; {error}"
            raise RefusedOutcomeUnknownError(message, error.word) from error

    def _write_anew(self, state: int) -> Op[tuple[ShardRecord | None, bool]]:
        """Store a record with a new generation and this state; return it, and whether it replaced a record.

        If the record is missing, shards may be left under the keys of a record that this object knows or
        would create, so that record is stored.  If this object knows none, nothing is stored.
        """
        while True:
            found, _ = yield from self._look_everywhere()
            if found is not None and found.record.state == DELETED:
                yield from self._end(found.record)  # another client's delete() was interrupted or still runs
                continue
            last = found.record if found else self._planned or self.record
            if last is None:
                return None, False
            new = last.renewed(state)
            now = yield from self._ask(new, found.record.head.identity if found else b"")
            if now.record.head.generation == new.head.generation:
                return now.record, found is not None

    def _end(self, record: ShardRecord) -> Op[None]:
        """Delete a deleted record's parts, and then the record.

        Keys that hold no part of any record are left alone.
        """
        placed = (
            self._on(record.server(number), part.seen()) for number, part in enumerate(self._parts(record))
        )
        outcomes = yield from gather(placed, most=_AT_ONCE)
        unless_failed(each for each in outcomes if not isinstance(each, FilterMismatchError))
        if (yield from self._is_stored(record)):
            seen = {number: each for number, each in enumerate(outcomes) if isinstance(each, Seen)}
            yield from self._drop(record, seen)
            yield from self._on(0, self._as_known(_DELETE, [self.key], [record.head.identity]))

    def expire(self, ttl: int) -> Op[None]:
        """Let all parts, and then the record, expire in `ttl` ms."""
        with self._begun("expire"):
            handle = None
            while self.handle is None or self.handle is not handle:  # repeat if the filter was replaced
                record = (yield from self.refreshed()).record
                handle = self.handle
                yield from self.each_shard(lambda shard: shard.expire(ttl))
                copies = range(record.shards, len(record.made))
                identities = {number: record.copy_made(record.made[number]).identity for number in copies}
                expiring = (
                    (number, self._as_known(_EXPIRE, [self.key], [identity, ttl]))
                    for number, identity in identities.items()
                )
                yield from self._each(record, expiring)
                yield from self._on(0, super().expire(ttl))


def _time(seen: Seen | None) -> int:
    """Return the time at which a part was created; 0 for None."""
    return seen.head.created_at if seen else 0
