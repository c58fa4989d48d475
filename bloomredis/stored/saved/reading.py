"""The parts of a stored filter, as they are read to be saved, copied or merged into another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from bloomredis.errors import FilterLostError, FilterNotFoundError
from bloomredis.protocol import replies
from bloomredis.protocol.calls import call
from bloomredis.protocol.gather import at, gather, unless_failed
from bloomredis.protocol.pieces import AT_ONCE, PIECE_BYTES, READ
from bloomredis.protocol.replies import Refusal
from bloomredis.protocol.steps import Op
from bloomredis.stored.layers.layers import StoredLayers
from bloomredis.stored.module.filter import StoredModule
from bloomredis.stored.one_key.single import StoredFilter
from bloomredis.stored.saved.format import Part, Saved
from bloomredis.stored.shards.shards import StoredShards
from bloomredis.stored.state.base import Stored
from bloomredis.stored.state.handle import Description

_GONE: Final = (replies.MISSING, replies.CHANGED, replies.FOREIGN, replies.DAMAGED, replies.WRONG_TYPE)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a part is: its key, and the number of its server if there are several."""

    key: bytes
    server: int | None = None


@dataclass(frozen=True, slots=True)
class StoredParts:
    """A filter as it is stored: all but the bits, and where these are."""

    name: str
    saved: Saved
    places: Mapping[int, Place]  # by the number of the part

    def read(self, part: Part, run: range) -> Op[list[bytes]]:
        """Return the bytes of a part from each of these on, `PIECE_BYTES` of them; by the primary.

        :raises FilterLostError: it is not the same filter any more.
        """
        place, identity = self.places[part.number], part.header.identity
        calls = (at(place.server, call(READ, [place.key], [identity, first, PIECE_BYTES])) for first in run)
        try:
            return unless_failed((yield from gather(calls)))
        except Refusal as refusal:
            if refusal.word not in _GONE:
                raise
            raise FilterLostError(
                f"{self.name!r} was cleared, deleted, rebuilt or lost while it was read, and nothing came of "
                "it: begin again"
            ) from None


def runs(part: Part) -> Iterator[range]:
    """Yield the first bytes of a part's pieces, as many at a time as are read or written together."""
    for first in range(0, part.num_bytes, PIECE_BYTES * AT_ONCE):
        yield range(first, min(first + PIECE_BYTES * AT_ONCE, part.num_bytes), PIECE_BYTES)


def parts_of(stored: Stored) -> Op[StoredParts]:
    """Describe a filter as it is stored now; a loss is noticed.

    :raises TypeError: it cannot be read: see `check`.
    """
    check(stored)
    if isinstance(stored, StoredLayers):
        return (yield from _of_layers(stored))
    if isinstance(stored, StoredShards):
        return (yield from _of_shards(stored))
    (found,) = yield from stored.current()
    return StoredParts(
        stored.name, Saved(b"", (Part(0, found.header),), _milliseconds(found)), {0: Place(found.key)}
    )


def check(stored: Stored) -> None:
    """Raise `TypeError`, without I/O, for what has no header of this library."""
    if isinstance(stored, StoredModule):
        raise TypeError(
            f"{stored.name!r} is in a key of the server's own module, in that module's format: copy it with "
            "the commands DUMP and RESTORE; in the place of a merge, add the items of one to the other"
        )
    if not isinstance(stored, StoredLayers | StoredShards | StoredFilter):
        raise TypeError(
            f"{stored.name!r} is a bitmap of another system, without a header: it can be copied with the "
            "commands COPY, DUMP and RESTORE"
        )


def _of_layers(stored: StoredLayers) -> Op[StoredParts]:
    described = yield from stored.current()
    record = stored.record
    found = {each.key: each for each in described}
    keys = {number: stored.layer_key(number) for number in record.numbers}
    left = [number for number in record.numbers if keys[number] in found]  # some may have ended
    if not left:
        raise FilterNotFoundError(f"{stored.name!r} has forgotten all its items; there is nothing to save")
    newest = found[keys[left[0]]]
    saved = Saved(
        record.forgetting(len(left)).pack(),
        tuple(Part(number, found[keys[number]].header) for number in left),
        _milliseconds(newest),
    )
    try:
        saved.check()
    except ValueError as error:  # it was emptied in between
        raise FilterLostError(f"{stored.name!r} was replaced while it was read: {error}") from None
    return StoredParts(stored.name, saved, {number: Place(keys[number]) for number in left})


def _of_shards(stored: StoredShards) -> Op[StoredParts]:
    found = yield from stored.refreshed()
    made = [number for number, entry in enumerate(found.table) if entry]
    described = yield from stored.each_shard(made, lambda shard: shard.current())
    parts = tuple(Part(number, each.header) for number, (each,) in zip(made, described, strict=True))
    record = found.record.settled()
    generations = {part.number: part.header.generation for part in parts}
    places = {
        number: Place(each.key, found.record.server(number) if stored.servers > 1 else None)
        for number, (each,) in zip(made, described, strict=True)
    }
    ttl = 0 if found.ttl < 0 else max(1, found.ttl)
    return StoredParts(stored.name, Saved(record.pack(generations), parts, ttl), places)


def _milliseconds(found: Description) -> int:
    return 0 if found.ttl is None else max(1, round(found.ttl * 1000))
