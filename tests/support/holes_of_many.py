"""Holes of filters of many keys, which can be opened again."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from bloomredis.protocol import replies, scripts
from bloomredis.stored.layers.layers import StoredLayers
from bloomredis.stored.layers.record import LayerRecord
from bloomredis.stored.shards.shards import StoredShards
from bloomredis.stored.shards.table import StoredShard

Patch = Callable[[Any, str, Any], object]
_RESERVE, _DELETE = map(scripts.load, ("reserve", "delete"))


def _stale_objects_drop_shards(patch: Patch) -> None:
    """A3: a shard of another record is taken for an older one, and not only when the record said so."""

    def find(self: Any, of_handle: Any, *, noticed: bool = False) -> Any:
        of, replaced = self._of, self._of.entry(self._number)
        if replaced:
            found = yield from self.found()
            if found is not None and found.generation == replaced:
                return found
            if not noticed:
                of.shard_lost(self._number)
        while True:
            record = of.known
            template = replace(record.shard, generation=record.tag + os.urandom(4)).pack()
            found = self.read((yield from self._call(_RESERVE, [template, 0], self.wait))).header
            if found.generation[:4] != record.tag:
                yield from self._as_known(_DELETE, [self.key], [found.identity])
                continue
            recorded = yield from of.record_shard(
                self._number, of_handle, found.generation, replaced, lasts=True
            )
            if recorded == found.generation:
                return found
            replaced = recorded

    patch(StoredShard, "_find_in", find)


def _damage_is_cleared_again(patch: Patch) -> None:
    """A4: each who meets a lost layer clears what is there by then."""

    def recover(self: Any, _: Any, handle: Any) -> Any:
        self.lose(f"a layer of {self.name!r} has vanished", handle, damaged=True)
        yield from self.clear()

    patch(StoredLayers, "RECOVERY", {**StoredLayers.RECOVERY, replies.DAMAGED: recover})


def _sweeps_go_too_far(patch: Patch) -> None:
    """A5: clear() and delete() delete the shards of records that came later."""

    def sweep(self: Any, record: Any) -> Any:
        shards: list[Any] = [StoredShard(self, number, record) for number in range(record.shards)]
        for each in shards:
            found = yield from self._on(record.server(each._number), each.found())
            if found is not None and found.generation[:4] != record.tag:
                yield from self._on(record.server(each._number), each.drop(found))

    patch(StoredShards, "_sweep", sweep)


def _a_lost_record_is_revived(patch: Patch) -> None:
    """A6: who finds that all it knew has ended begins a layer in the generation that was there."""

    def begin_anew(self: Any, _: Any, handle: Any) -> Any:
        revived = replace(self._known(handle), newest=0, began=())
        self._switch((yield from self._push(None, revived)), handle)

    patch(StoredLayers, "RECOVERY", {**StoredLayers.RECOVERY, replies.ENDED: begin_anew})
    patch(LayerRecord, "continues", lambda self, known: self.head.generation == known.head.generation)


def _records_are_not_looked_at(patch: Patch) -> None:
    """A7: nobody who has opened a shard looks at the record again."""
    patch(StoredShards, "is_look_due", lambda _: False)


HOLES_OF_MANY: Final[dict[str, Callable[[Patch], None]]] = {
    "stale-drops": _stale_objects_drop_shards,
    "damage-cleared-again": _damage_is_cleared_again,
    "sweeps-too-far": _sweeps_go_too_far,
    "record-revived": _a_lost_record_is_revived,
    "record-not-looked-at": _records_are_not_looked_at,
}
