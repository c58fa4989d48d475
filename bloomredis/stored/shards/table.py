"""The table of a sharded filter's record, which says which shards exist, and each of these shards."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar, Unpack

from bloomredis.errors import (
    ConnectionFailedError,
    FilterMismatchError,
    FilterNotFoundError,
    ServerRefusedError,
)
from bloomredis.protocol import clock, forms, scripts
from bloomredis.protocol.calls import call
from bloomredis.protocol.gather import gather, unless_failed
from bloomredis.protocol.replies import Refusal
from bloomredis.protocol.steps import Op
from bloomredis.stored import planning
from bloomredis.stored.header import Header
from bloomredis.stored.one_key.single import StoredFilter
from bloomredis.stored.shards import record as shard_record
from bloomredis.stored.shards.record import ShardRecord
from bloomredis.stored.shards.servers import RecordServers
from bloomredis.stored.state.base import Arguments
from bloomredis.stored.state.handle import Handle, LayoutChanged
from bloomredis.stored.state.versioned import Versioned

NO_GENERATION: Final = bytes(8)
"""Entry of the table for a shard that has never been made."""
UNRECORDED_MS: Final = 60_000
"""A shard lives no longer until its maker has seen the record again: one whose maker died goes by itself."""
_RESERVE: Final = scripts.load("reserve", forms.state)
_DELETE, _EXPIRE = (scripts.load(verb, forms.integer) for verb in ("delete", "expire"))


class StoredShard(StoredFilter):
    """A shard, with its entry in the table of the record."""

    def __init__(self, of: RecordTable, number: int, record: ShardRecord) -> None:
        name = shard_record.key(of.name, record.shards, number)
        super().__init__(name, new=None, layout=None, ttl=0, on_lost=of._on_lost, wait=of.wait)  # noqa: SLF001 - a part of it
        self._of = of
        self._number = number
        self._doubted: Handle | None = None  # a call met another shard than this, and nobody was told yet

    def reset(self) -> None:
        """Drop the handle; what was lost was so together with the filter, or the caller knows of it."""
        super().reset()
        self._doubted = None

    def open(self, *, noticed: bool = False) -> Op[Handle]:
        """Make the shard if it has never been made; check and remember it.

        :param noticed: the caller knows of its loss.
        """
        return self._of.attempt(
            lambda handle: self._open_by(partial(self._find_in, handle, noticed=noticed), stands=True)
        )

    def is_absent(self) -> Op[bool]:
        """Return whether the shard has never been made, and so has no item."""
        if self.handle is not None:
            return False
        return not (yield from self._of.attempt(self._is_made))

    def found(self) -> Op[Header | None]:
        """Return the header of what is stored, whatever its generation; None if that is no filter."""
        try:
            return (yield from self.describe()).header
        except (FilterNotFoundError, FilterMismatchError):
            return None

    def drop(self, doomed: Header) -> Op[None]:
        """Delete the shard if it is this one."""
        yield from self._as_known(_DELETE, [self.key], [doomed.identity])

    def _is_made(self, of_handle: Handle) -> Op[bool]:
        """Return whether the shard is recorded, or there though the record fell back to an earlier state."""
        of = self._of
        if of.entry(self._number):
            return True
        asked = (
            of.recorded(self._number, of_handle),
            of.on_its_server(self._number, self._is_there(of_handle)),
        )
        return any(unless_failed((yield from gather(asked))))

    def _is_there(self, of_handle: Handle) -> Op[bytes]:
        found = yield from self.found()
        return found.generation if found is not None and _owns(of_handle, found) else b""

    def _find_in(self, of_handle: Handle, *, noticed: bool = False) -> Op[Header]:
        """Find or make the shard of the record that a handle names, whatever others of this object open."""
        of, number, doubted = self._of, self._number, self._doubted
        recorded = of.entry(number)  # before the shard is looked at: what is missing then was lost
        while True:
            makes = noticed or not recorded
            found = yield from (self._reserved(of_handle) if makes else self.found())
            now = yield from of.recorded(number, of_handle)
            if doubted is not None and not noticed:  # the record is the same: it is the shard that was lost
                noticed = True
                if next(doubted.losses) == 0:
                    of.shard_lost(number)
                yield from of.acquire()  # raises as long as the caller has not dealt with the loss
            if found is not None and found.generation == now:
                return found
            if now != recorded:
                recorded = now  # another client was faster
            elif not makes:
                of.shard_lost(number)
                noticed = True
            elif found is not None and not _owns(of_handle, found):
                yield from self.drop(found)
            elif found is not None and (yield from self.stays(found, ttl := of.remaining)):
                recorded = yield from of.record_shard(number, of_handle, found.generation, now, lasts=not ttl)
                if recorded == found.generation:
                    return found

    def _reserved(self, of_handle: Handle) -> Op[Header]:
        """Make the shard if there is none, for a moment; return the header of what is there."""
        of = self._of
        generation = shard_record.tag_of(of_handle.generation) + os.urandom(4)
        template = replace(of.known.shard, generation=generation).pack()
        ttl = min(of.remaining or UNRECORDED_MS, UNRECORDED_MS)
        return self.read((yield from self._call(_RESERVE, [template, ttl], self.wait))).header

    def stays(self, found: Header, ttl: int) -> Op[bool]:
        """Let the shard live for `ttl` ms from now, or for ever if that is 0; False if it is gone."""
        return (yield from self._as_known(_EXPIRE, [self.key], [found.identity, ttl])) is not None

    def _accept(self, head: Header) -> Handle:
        self._doubted = None
        return super()._accept(head)

    def _recover_shard(self, refusal: Refusal, handle: Handle) -> Op[None]:  # noqa: ARG002 - all are losses
        self.forget()
        self._doubted = handle
        yield from self.open()

    RECOVERY = dict.fromkeys(Versioned.RECOVERY, _recover_shard)

    def lose(self, what: str, handle: Handle, *, damaged: bool = False) -> None:  # noqa: ARG002 - a shard is lost but once
        """Notice a loss that was found outside a script."""
        self.forget()
        self._of.shard_lost(self._number)


def _owns(record: Handle, shard: Header) -> bool:
    """True for a shard of that record, False for one of an earlier record."""
    return shard_record.tag_of(shard.generation) == shard_record.tag_of(record.generation)


T = TypeVar("T")

LOOK_SECONDS: Final = 1.0
"""What an object in use knows of the record is no older than that."""
_AT_ONCE: Final = 256
"""Shards that are looked at in one round trip."""
_RECORD: Final = scripts.load("record_shard", forms.record)


class RecordTable(RecordServers):
    """The record, with its table of shards and its expiry."""

    def __init__(
        self,
        name: str,
        *,
        plan: Callable[..., ShardRecord] | None,
        layout: str | None,
        wanted: Mapping[str, int | None],
        **options: Unpack[planning.StorageOptions],
    ) -> None:
        self._shards: dict[int, StoredShard] = {}
        self._table: list[bytes] = []
        self._until = 0.0  # it expires, by the clock of this process; 0 for never
        self._looked = 0.0  # when the record was asked for, by that clock
        self.record: ShardRecord | None = None
        super().__init__(name, plan=plan, layout=layout, wanted=wanted, **options)

    @property
    def head(self) -> Header | None:
        return self.record.head if self.record else super().head

    def shard(self, number: int) -> StoredShard:
        """Return the state of a shard."""
        if number not in self._shards:
            self._shards.setdefault(number, StoredShard(self, number, self.known))
        return self._shards[number]

    def reset(self) -> None:
        super().reset()
        for shard in list(self._shards.values()):
            shard.reset()

    def _note(self, ttl: int, asked: float) -> None:
        """Note when the record was asked for: what came late may be old by now."""
        self._looked = asked
        self._until = clock.now() + ttl / 1000 if ttl >= 0 else 0.0

    @property
    def known(self) -> ShardRecord:
        """The record as this object knows it; the filter has to be open."""
        if self.record is None:
            raise RuntimeError(f"{self.name!r} has not been opened")
        return self.record

    @property
    def remaining(self) -> int:
        """Milliseconds to live of a shard that is made now, 0 if it does not expire."""
        return max(1, round((self._until - clock.now()) * 1000)) if self._until else 0

    def entry(self, number: int) -> bytes:
        """Return the generation of a shard as it was recorded when this object looked, b"" for none."""
        return self._table[number]

    def recorded(self, number: int, handle: Handle) -> Op[bytes]:
        """Return the generation of a shard that is recorded now, b"" if it has never been made.

        :raises LayoutChanged: the record is not that of the handle any more.
        """
        return self.record_shard(number, handle, b"", b"", lasts=False)

    def record_shard(
        self, number: int, handle: Handle, generation: bytes, replaced: bytes, *, lasts: bool
    ) -> Op[bytes]:
        """Record a shard's generation if the entry is `replaced`; return the generation that is recorded now.

        :param lasts: the shard does not expire; nothing is recorded if the record does.
        :raises LayoutChanged: the record is not that of the handle any more.
        """
        arguments: Arguments = [
            handle.identity,
            number,
            generation,
            replaced or NO_GENERATION,
            b"1" if lasts else b"",
        ]
        wait = self.wait if generation else None
        asked = clock.now()
        try:
            data, ttl = yield from self._on(0, call(_RECORD, [self.key], arguments, wait))
        except Refusal as refusal:
            refused = refusal
        else:
            entry = data.replace(NO_GENERATION, b"")
            if self.handle is handle:  # no other call has opened another filter
                self._table[number] = entry
                self._note(ttl, asked)
            return entry
        yield from self._recover(refused, handle)
        raise LayoutChanged

    def shard_lost(self, number: int) -> None:
        """Notice the loss of a shard: raise `FilterLostError` or go on, as `on_lost` says."""
        self._tell(f"shard {number} of {self.name!r} was expired, evicted, flushed, deleted or replaced")

    def is_look_due(self) -> bool:
        """True if the record was not read in the last second."""
        return not 0 <= clock.now() - max(self._looked, self.under_way.looked) < LOOK_SECONDS

    def look(self) -> Op[None]:
        """Look whether the record is still the same, and open it anew if not; a loss is noticed.

        A record that cannot be read is looked at again in a second: its server may be away.
        """
        self.under_way.looked = clock.now()
        with suppress(ConnectionFailedError, ServerRefusedError, LayoutChanged):
            yield from self.recorded(0, (yield from self.acquire()))

    def on_its_server(self, number: int, operation: Op[T]) -> Op[T]:
        """Run an operation on the server that has a shard."""
        return self._on(self.known.server(number), operation)

    def made(self) -> list[int]:
        """Return the numbers of the shards that are known to have been made."""
        return [number for number, entry in enumerate(self._table) if entry]

    def _each(self, record: ShardRecord, numbers: Iterable[int], call: Callable[[int], Op[T]]) -> Op[list[T]]:
        """Call for each number of a shard, on the server that has it."""
        calls = (self._on(record.server(number), call(number)) for number in numbers)
        return unless_failed((yield from gather(calls, most=_AT_ONCE)))
