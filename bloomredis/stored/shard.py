"""One shard of a sharded filter: it exists if it is recorded."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bloomredis.errors import FilterMismatchError, FilterNotFoundError
from bloomredis.protocol import scripts
from bloomredis.protocol.replies import Refusal
from bloomredis.protocol.steps import Op
from bloomredis.stored import shard_record
from bloomredis.stored.handle import Handle
from bloomredis.stored.header import Header
from bloomredis.stored.shard_record import ShardRecord
from bloomredis.stored.single import StoredFilter
from bloomredis.stored.versioned import Versioned

if TYPE_CHECKING:
    from bloomredis.stored.shards import StoredShards

NO_GENERATION: Final = bytes(8)
"""Entry of the table for a shard that has never been made."""
_RESERVE, _DELETE = map(scripts.load, ("reserve", "delete"))


class StoredShard(StoredFilter):
    """A shard, with its entry in the table of the record."""

    def __init__(self, of: StoredShards, number: int, record: ShardRecord | None = None) -> None:
        record = record or of.record
        assert record is not None  # noqa: S101 - shards are known from a record
        name = shard_record.key(of.name, record.shards, number)
        super().__init__(name, new=None, layout=None, ttl=0, on_lost=of._on_lost, wait=of.wait)  # noqa: SLF001 - a part of it
        self._of = of
        self._number = number

    def open(self, *, noticed: bool = False) -> Op[Handle]:
        """Make the shard if it has never been made; check and remember it."""
        return self._of.attempt(lambda _: self._open(noticed=noticed))

    def is_absent(self) -> Op[bool]:
        """Return whether the shard has never been made, and so has no item."""
        if self.handle is not None:
            return False
        return not (yield from self._of.attempt(lambda _: self._of.recorded(self._number)))

    def drop(self, doomed: Callable[[bytes], bool]) -> Op[None]:
        """Delete the shard if its generation is `doomed`."""
        while (found := (yield from self._found())) is not None and doomed(found.generation):
            yield from self._as_known(_DELETE, [self.key], [found.identity])

    def _found(self) -> Op[Header | None]:
        try:
            return (yield from self.describe()).header
        except (FilterNotFoundError, FilterMismatchError):
            return None

    def _open(self, *, noticed: bool = False) -> Op[Handle]:
        recorded = yield from self._of.recorded(self._number)
        if not recorded:
            return (yield from self._make(NO_GENERATION))
        found = yield from self._found()
        if found is not None and found.generation == recorded:
            return self._accept(found)
        if not noticed:
            self._of.shard_lost(self._number)
        return (yield from self._make(recorded))

    def _make(self, replaced: bytes) -> Op[Handle]:
        """Create the shard unless another client has, and record it."""
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
            replaced = recorded or NO_GENERATION

    def _recover_shard(self, refusal: Refusal, handle: Handle) -> Op[None]:  # noqa: ARG002 - all are losses
        if next(handle.losses) == 0:
            self.handle = None
            if self._on_lost == "raise":
                self._of.shard_lost(self._number)
            yield from self._of.attempt(lambda _: self._make_again(handle.generation))

    RECOVERY = dict.fromkeys(Versioned.RECOVERY, _recover_shard)

    def lose(self, what: str, handle: Handle, *, damaged: bool = False) -> None:  # noqa: ARG002 - a shard is lost but once
        """Notice a loss that was found outside a script."""
        self.handle = None
        self._of.shard_lost(self._number)

    def _make_again(self, lost: bytes) -> Op[Handle]:
        if (yield from self._of.record_shard(self._number)) != lost:  # another client was faster
            return (yield from self._open())
        self._of.shard_lost(self._number)
        return (yield from self._make(lost))
