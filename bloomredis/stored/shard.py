"""One shard of a sharded filter: it exists if it is recorded.

A shard is found, made or deleted by what the record says *after* the shard was looked at.  The generation of
a record only goes forward, so a shard of another one is then known to be an earlier one's, and deleted by its
exact identity.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from bloomredis.errors import FilterMismatchError, FilterNotFoundError
from bloomredis.protocol import scripts
from bloomredis.protocol.gather import gather, unless_failed
from bloomredis.protocol.replies import Refusal
from bloomredis.protocol.steps import Op
from bloomredis.stored import shard_record
from bloomredis.stored.handle import Handle
from bloomredis.stored.header import Header
from bloomredis.stored.shard_record import ShardRecord
from bloomredis.stored.single import StoredFilter
from bloomredis.stored.versioned import Versioned

if TYPE_CHECKING:
    from bloomredis.stored.shard_table import RecordTable

NO_GENERATION: Final = bytes(8)
"""Entry of the table for a shard that has never been made."""
UNRECORDED_MS: Final = 60_000
"""A shard lives no longer until its maker has seen the record again: one whose maker died goes by itself."""
_RESERVE, _DELETE, _EXPIRE = map(scripts.load, ("reserve", "delete", "expire"))


class StoredShard(StoredFilter):
    """A shard, with its entry in the table of the record."""

    def __init__(self, of: RecordTable, number: int, record: ShardRecord) -> None:
        name = shard_record.key(of.name, record.shards, number)
        super().__init__(name, new=None, layout=None, ttl=0, on_lost=of._on_lost, wait=of.wait)  # noqa: SLF001 - a part of it
        self._of = of
        self._number = number
        self._doubted: Handle | None = None  # a call met another shard than this, and nobody was told yet

    def reset(self) -> None:
        """Drop the cache; what was lost was so together with the filter, or the caller knows of it."""
        super().reset()
        self._doubted = None

    def open(self, *, noticed: bool = False) -> Op[Handle]:
        """Make the shard if it has never been made; check and remember it.

        :param noticed: the caller knows of its loss.
        """
        return self._of.attempt(
            lambda handle: self._open_by(
                partial(self._find_in, handle, noticed=noticed), self._accept, stands=True
            )
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
        self.handle, self._doubted = None, handle
        yield from self.open()

    RECOVERY = dict.fromkeys(Versioned.RECOVERY, _recover_shard)

    def lose(self, what: str, handle: Handle, *, damaged: bool = False) -> None:  # noqa: ARG002 - a shard is lost but once
        """Notice a loss that was found outside a script."""
        self.handle = None
        self._of.shard_lost(self._number)


def _owns(record: Handle, shard: Header) -> bool:
    """True for a shard of that record, False for one of an earlier record."""
    return shard_record.tag_of(shard.generation) == shard_record.tag_of(record.generation)
