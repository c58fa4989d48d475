"""Reading the parts of a stored filter, to save, copy or merge it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from bloomredis.errors import FilterLostError, FilterNotFoundError
from bloomredis.protocol import replies
from bloomredis.protocol.calls import call
from bloomredis.protocol.gather import gather, unless_failed
from bloomredis.protocol.pieces import PIECE_BYTES, PIECES_AT_ONCE, READ
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
class StoredParts:
    """A stored filter without its bits, and the keys of the bits."""

    name: str
    saved: Saved
    keys: Mapping[int, bytes]  # by the number of the part

    def read(self, part: Part, run: range) -> Op[list[bytes]]:
        """Return the pieces of a part that begin at these bytes, read from the primary.

        :raises FilterLostError: the filter was replaced or lost meanwhile.
        """
        key = self.keys[part.number]
        for head in (part.header, part.header.acknowledged):  # somebody may have marked it since
            calls = (call(READ, [key], [head.identity, first, PIECE_BYTES]) for first in run)
            try:
                return unless_failed((yield from gather(calls)))
            except Refusal as refusal:
                if refusal.word not in _GONE:
                    raise
        raise _lost(self.name)


def byte_ranges(part: Part) -> Iterator[range]:
    """Yield the indexes of the first bytes of a part's pieces, one range for each round trip."""
    for first in range(0, part.num_bytes, PIECE_BYTES * PIECES_AT_ONCE):
        yield range(first, min(first + PIECE_BYTES * PIECES_AT_ONCE, part.num_bytes), PIECE_BYTES)


def read_parts(stored: Stored) -> Op[StoredParts]:
    """Describe a stored filter; detect a loss.

    :raises TypeError: the filter cannot be read (`check_readable`).
    """
    check_readable(stored)
    if isinstance(stored, StoredLayers):
        return (yield from _layer_parts(stored))
    if isinstance(stored, StoredShards):
        return (yield from _shard_parts(stored))
    (found,) = yield from stored.current()
    return StoredParts(
        stored.name, Saved(b"", (Part(0, found.header),), _milliseconds(found)), {0: found.key}
    )


def check_readable(stored: Stored) -> None:
    """Raise `TypeError`, without I/O, for a filter without a header of this library."""
    if isinstance(stored, StoredModule):
        raise TypeError(
            f"{stored.name!r} is in a key of the server's own module, in that module's format: copy it with "
            "the commands DUMP and RESTORE; instead of a merge, add the items of one filter to the other"
        )
    if not isinstance(stored, StoredLayers | StoredShards | StoredFilter):
        raise TypeError(
            f"{stored.name!r} is a bitmap of another system, without a header: it can be copied with the "
            "commands COPY, DUMP and RESTORE"
        )


def _layer_parts(stored: StoredLayers) -> Op[StoredParts]:
    described = yield from stored.current()
    record = stored.record
    found = {each.key: each for each in described}
    keys = {number: stored.layer_key(number) for number in record.numbers}
    left = [number for number in record.numbers if keys[number] in found]  # some may have ended
    if not left:
        raise FilterNotFoundError(
            f"{stored.name!r} has forgotten all its items, so nothing can be saved",
            advice="save it after the next add",
        )
    newest = found[keys[left[0]]]
    parts = tuple(Part(number, found[keys[number]].header) for number in left)
    saved = Saved(record.forgetting(len(left)).pack(), parts, _milliseconds(newest))
    return _checked(stored.name, saved, {number: keys[number] for number in left})


def _shard_parts(stored: StoredShards) -> Op[StoredParts]:
    found = yield from stored.refreshed()
    described = yield from stored.each_shard(lambda shard: shard.current())
    written = {number: each for number, (each,) in enumerate(described) if each.size_bytes > each.first_byte}
    parts = tuple(Part(number, each.header) for number, each in written.items())
    record = found.record.settled({part.number: part.header.created_at for part in parts})
    ttl = 0 if found.ttl < 0 else max(1, found.ttl)
    saved = Saved(record.pack(), parts, ttl)
    return _checked(stored.name, saved, {number: each.key for number, each in written.items()})


def _checked(name: str, saved: Saved, keys: Mapping[int, bytes]) -> StoredParts:
    """Return the parts; raise `FilterLostError` if the filter was emptied after its record was read."""
    try:
        saved.check()
    except ValueError:
        raise _lost(name) from None
    return StoredParts(name, saved, keys)


def _lost(name: str) -> FilterLostError:
    return FilterLostError(
        f"{name!r} was cleared, deleted or lost while it was read, and nothing was written",
        advice="begin again",
    )


def _milliseconds(found: Description) -> int:
    return 0 if found.ttl is None else max(1, round(found.ttl * 1000))
