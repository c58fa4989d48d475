"""Holes of filters of many keys, which can be opened again."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, Final

from bloomredis.protocol import replies
from bloomredis.stored.layers.layers import StoredLayers
from bloomredis.stored.layers.record import LayerRecord
from bloomredis.stored.shards.shards import StoredShards

Patch = Callable[[Any, str, Any], object]


def _stale_objects_drop_shards(patch: Patch) -> None:
    """A3: a shard of another record always counts as an older one, not only if the record said so."""

    def is_stored(self: Any, record: Any) -> Any:
        yield from ()
        return True

    patch(StoredShards, "_is_stored", is_stored)


def _damage_is_cleared_again(patch: Patch) -> None:
    """A4: every object that finds a lost layer clears the current filter."""

    def recover(self: Any, _: Any, handle: Any) -> Any:
        self._lose(f"a layer of {self.name!r} has vanished", handle.link, is_damage=True)
        yield from self.clear()

    patch(StoredLayers, "RECOVERY", {**StoredLayers.RECOVERY, replies.DAMAGED: recover})


def _sweeps_go_too_far(patch: Patch) -> None:
    """A5: clear() and delete() delete the shards of later records."""
    end = StoredShards._end

    def always(_: Any) -> Any:
        yield from ()
        return True

    def too_far(self: Any, record: Any) -> Any:
        shadow: Any = copy(self)  # since other calls of the object run at the same time
        shadow._is_stored = always
        yield from end(shadow, record)

    patch(StoredShards, "_end", too_far)


def _a_lost_record_is_revived(patch: Patch) -> None:
    """A6: an object whose whole knowledge has expired begins a layer in the old generation."""

    def begin_anew(self: Any, _: Any, handle: Any) -> Any:
        revived = replace(self._record_of(handle), newest=0, began=())
        self._switch((yield from self._push(None, revived)), handle)

    patch(StoredLayers, "RECOVERY", {**StoredLayers.RECOVERY, replies.ENDED: begin_anew})
    patch(LayerRecord, "continues", lambda self, known: self.head.generation == known.head.generation)


HOLES_OF_MANY: Final[dict[str, Callable[[Patch], None]]] = {
    "stale-drops": _stale_objects_drop_shards,
    "damage-cleared-again": _damage_is_cleared_again,
    "sweeps-too-far": _sweeps_go_too_far,
    "record-revived": _a_lost_record_is_revived,
}
