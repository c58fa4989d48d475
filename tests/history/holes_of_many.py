"""Holes of filters of many keys, which can be opened again: code as it was before they were mended."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from bloomredis.errors import FilterNotFoundError
from bloomredis.protocol import replies, scripts
from bloomredis.protocol.gather import gather, unless_failed
from bloomredis.stored import shard, shards
from bloomredis.stored.layers import StoredLayers
from bloomredis.stored.shard import NO_GENERATION, StoredShard
from bloomredis.stored.shards import StoredShards
from tests.support.clock import Clock

_RESERVE, _DELETE = map(scripts.load, ("reserve", "delete"))


def _stale_objects_drop_shards() -> None:
    """A3: a shard of another record is taken for an older one."""

    def make(self: Any, replaced: bytes) -> Any:
        while True:
            record = self._of.record
            template = replace(record.shard, generation=record.tag + os.urandom(4)).pack()
            reply = yield from self._call(_RESERVE, [template, self._of.remaining], self.wait)
            found = self.read(reply).header
            if found.generation[:4] != record.tag:
                yield from _dropped(self, _not_of(record))
                continue
            recorded = yield from self._of.record_shard(self._number, found.generation, replaced)
            if recorded == found.generation:
                return self._accept(found)
            self._of.shard_lost(self._number)
            replaced = recorded or NO_GENERATION

    StoredShard._make = make  # type: ignore[method-assign]  # that is the hole


def _not_of(record: Any) -> Callable[[bytes], bool]:
    return lambda generation: bool(generation[:4] != record.tag)


def _dropped(of: Any, doomed: Callable[[bytes], bool]) -> Any:
    while (found := (yield from of._found())) is not None and doomed(found.generation):
        yield from of._as_known(_DELETE, [of.key], [found.identity])


def _damage_is_cleared_again() -> None:
    """A4: each who meets a lost layer clears what is there by then."""

    def recover(self: Any, _: Any, handle: Any) -> Any:
        self.lose(f"a layer of {self.name!r} has vanished", handle, damaged=True)
        yield from self.clear()

    StoredLayers.RECOVERY = {**StoredLayers.RECOVERY, replies.DAMAGED: recover}


def _swept(self: Any, record: Any, doomed: Callable[[bytes], bool]) -> Any:
    def one(number: int) -> Any:
        return self._on(record.server(number), _dropped(StoredShard(self, number, record), doomed))

    unless_failed((yield from gather(map(one, range(record.shards)))))


def _cleared(self: Any) -> Any:
    self.reset()
    while True:
        found = yield from self._look(0)
        if found is None:
            yield from self.open()
            return
        head = replace(found.record.head, generation=os.urandom(8))
        new = replace(found.record, head=head)
        now = yield from self._ask(0, new, found.record.head.identity)
        if now.record.head.generation == head.generation:
            break
    yield from self._copies(new, is_new=True)
    self._know(now)
    yield from _swept(self, new, _not_of(new))


def _deleted(self: Any, arguments: Sequence[Any], keys: Sequence[bytes]) -> Any:
    self.reset()
    found = None
    while (found := (yield from self._look(0))) is not None:
        values = [found.record.head.identity, *arguments]
        deleted = yield from self._on(0, self._as_known(_DELETE, [self.key, *keys], values))
        if deleted is not None:
            break
    record = found.record if found else self._planned
    if record is not None:
        yield from _swept(self, record, lambda generation: found is None or generation[:4] == record.tag)
        places = range(1, self.servers)
        unless_failed((yield from gather(self._delete_copy(place) for place in places)))
    return found is not None


def _sweeps_go_too_far() -> None:
    """A5: clear() and delete() delete the shards of records that came later."""
    StoredShards.clear = _cleared  # type: ignore[method-assign]  # that is the hole
    StoredShards.delete = _deleted  # type: ignore[method-assign]


def _a_lost_record_is_revived() -> None:
    """A6: whoever begins a layer where the record is gone begins it in the generation that was there."""

    def grow(self: Any, _: Any, handle: Any) -> Any:
        try:
            found = yield from self._push(self.record, self.record.following())
        except FilterNotFoundError:
            self.lose(self.loss(replies.MISSING), handle)
        else:
            self._switch(found, handle)

    StoredLayers.RECOVERY = {**StoredLayers.RECOVERY, replies.FULL: grow}


def _records_are_not_looked_at() -> None:
    """A7: no second is ever over, so that nobody who has opened a shard looks at the record again."""

    class Stopped(Clock):
        def monotonic(self) -> float:
            return 0.0

    for module in (shard, shards):
        module.time = Stopped()  # type: ignore[attr-defined]  # if it looks at a clock


HOLES_OF_MANY: Final[dict[str, Callable[[], None]]] = {
    "stale-drops": _stale_objects_drop_shards,
    "damage-cleared-again": _damage_is_cleared_again,
    "sweeps-too-far": _sweeps_go_too_far,
    "record-revived": _a_lost_record_is_revived,
    "record-not-looked-at": _records_are_not_looked_at,
}
