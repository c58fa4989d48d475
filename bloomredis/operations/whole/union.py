"""The union of filters: the bits of one are OR-ed into another with the same parameters.

If both are in one slot of a server, the server ORs them by itself; otherwise the bits pass through the
client.  They are OR-ed in pieces of 128 KB, each atomically.  Nothing that other clients add meanwhile is
lost.  A merge may be repeated.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, Final, Protocol, TypeVar

from bloomredis.bits import sizing
from bloomredis.errors import FilterLostError
from bloomredis.operations.options import Progress
from bloomredis.operations.whole.load_calls import LoadCalls, LoadedFilter
from bloomredis.operations.whole.snapshot import LocalFilter
from bloomredis.protocol import forms, scripts
from bloomredis.protocol.gather import gather, unless_failed
from bloomredis.protocol.pieces import PIECE_BYTES
from bloomredis.protocol.replies import OutcomeMatters
from bloomredis.protocol.steps import Next, Op
from bloomredis.stored.header import Header
from bloomredis.stored.saved import mergeable
from bloomredis.stored.saved.format import Part, Saved
from bloomredis.stored.saved.reading import StoredParts, byte_ranges, check_readable, read_parts
from bloomredis.stored.state.base import Arguments, Stored
from bloomredis.stored.state.handle import Description, Handle, LayoutChanged

T = TypeVar("T")

_OR_SEGMENT: Final = scripts.load_script("or_segment", forms.data)
_OR_FROM: Final = scripts.load_script("or_from", forms.integer)
_log: Final = logging.getLogger("bloomredis")


class FilterInOneKey(LoadedFilter, Protocol):
    """The operations of a filter in one key that a merge needs."""

    name: str

    def ones(self, found: Description) -> Op[int]:
        """Return the number of bits that are set."""


class MergedFilter(Protocol):
    """The operations of a filter in one key, or in shards that are such filters."""

    name: str
    stored: Stored

    def on_part(self, number: int, call: Callable[[FilterInOneKey], Op[T]]) -> Op[T]:
        """Run an operation on the part with that number, whose operations `call` gets."""


Pieces = Iterator[list[bytes]] | AsyncIterator[list[bytes]]


@dataclass(frozen=True)
class MergeSource:
    """A filter to be merged into another.

    :param pieces: returns an iterator over the pieces of a part, those of one of its `byte_ranges` at a time;
        with an asyncio driver an async iterator.
    :param local_key_for: returns the key of a part if one script can use it and the given key; else None.
    """

    name: str
    saved: Saved
    pieces: Callable[[Part], Pieces]
    local_key_for: Callable[[Part, bytes], bytes | None]


def stored_source(
    parts: StoredParts, pieces: Callable[[Part], Pieces], share_node: Callable[[bytes, bytes], bool]
) -> MergeSource:
    """Return a filter on a server as a source.

    :param share_node: returns whether one script can take a key of this filter and another key.
    """

    def local_key_for(part: Part, key: bytes) -> bytes | None:
        own = parts.keys[part.number]
        return own if share_node(own, key) else None

    return MergeSource(parts.name, parts.saved, pieces, local_key_for)


def local_source(local: LocalFilter[Any], pieces: Callable[[Part], Pieces]) -> MergeSource:
    """Return a copy in this process as a source."""
    return MergeSource(local.name, local._about.saved, pieces, lambda *_: None)  # noqa: SLF001 - not part of the public class


def local_pieces(local: LocalFilter[Any]) -> Callable[[Part], Iterator[list[bytes]]]:
    """Return a function that iterates over the pieces of a part of a copy in this process."""
    about = local._about  # noqa: SLF001 - not part of the public class
    parts = zip(about.saved.parts, about.parts, strict=True)
    found = {part.number: bits.bytes for part, (_, bits) in parts}

    def pieces(part: Part) -> Iterator[list[bytes]]:
        own = found[part.number]
        return ([bytes(own[first : first + PIECE_BYTES]) for first in run] for run in byte_ranges(part))

    return pieces


def merge(into: MergedFilter, source: MergeSource, progress: Progress | None = None) -> Op[None]:
    """OR a filter into another.

    :param progress: called with the number of bytes done so far, and the total.
    :raises FilterMismatchError: the parameters of the filters differ.
    :raises TypeError: filters of such a class cannot be merged.
    """
    check_readable(into.stored)
    yield from into.stored.acquire()
    own = (yield from read_parts(into.stored)).saved
    mergeable.check_mergeable(into.name, own, source.name, source.saved)
    parts = source.saved.parts
    total, added = sum(part.num_bytes for part in parts), 0
    before = accumulate((part.num_bytes for part in parts), initial=0)
    for part, begin in zip(parts, before, strict=False):
        note = partial(_note, progress, begin, total)
        added += yield from into.on_part(part.number, partial(_merge_part, source, part, note))
    _warn(into.name, own, added)


def _note(progress: Progress | None, begin: int, total: int, done: int) -> None:
    if progress is not None:
        progress(begin + done, total)


def _merge_part(
    source: MergeSource, part: Part, note: Callable[[int], None], into: FilterInOneKey
) -> Op[int]:
    """OR a part into a filter in one key; return the estimated number of new items."""
    stored = into.stored
    with OutcomeMatters(into.name, "merge it again"):
        handle = yield from stored.acquire()
        (found,) = yield from stored.current()
        ones = yield from into.ones(found)
        or_run = _way(stored, handle, source, part)
        try:
            new = 0
            for run in byte_ranges(part):
                new += yield from or_run(run)
                note(min(run.stop, part.num_bytes))
            added = min(_more(found.header, ones, new), part.header.count)
            if added:
                yield from LoadCalls(into).add_count(handle, added)
        except LayoutChanged:
            raise FilterLostError(
                f"{into.name!r} was replaced during the merge", advice="merge again"
            ) from None
    return added


def _more(head: Header, ones: int, new: int) -> int:
    """Return the estimated number of items that have set the new bits."""
    before, now = (
        sizing.approximate_count(bits, head.num_bits, head.num_hashes) for bits in (ones, ones + new)
    )
    return max(0, now - before)


def _way(stored: Stored, handle: Handle, source: MergeSource, part: Part) -> Callable[[range], Op[int]]:
    """Return a function that ORs the pieces of a part, run after run, and returns the number of new bits."""
    temporaries = (stored.auxiliary + b"segment:old", stored.auxiliary + b"segment:new")
    key = source.local_key_for(part, handle.key)
    if key is None:
        or_segment = partial(stored.run, _OR_SEGMENT, handle, keys=temporaries)
        return partial(_by_client, or_segment, source.pieces(part))
    or_from = partial(stored.run, _OR_FROM, handle, keys=(key, *temporaries))
    return partial(_in_server, or_from, source.name, part)


def _by_client(send: Callable[[Arguments], Op[bytes]], pieces: Pieces, run: range) -> Op[int]:
    """OR the next pieces, which pass through the client; return the number of new bits."""
    read: list[bytes] = yield Next(pieces)
    some = [(first, piece) for first, piece in zip(run, read, strict=True) if piece.strip(b"\0")]
    before = unless_failed((yield from gather(map(send, some))))
    return sum(map(_new_bits, before, (piece for _, piece in some)))


def _in_server(send: Callable[[Arguments], Op[int]], name: str, part: Part, run: range) -> Op[int]:
    """OR pieces that the same server has; return the number of new bits."""
    total, end = 0, part.num_bytes
    for head in (part.header, part.header.acknowledged):  # somebody may have marked it since
        sizes = ((head.identity, first, min(PIECE_BYTES, end - first)) for first in run)
        added = unless_failed((yield from gather(map(send, sizes))))
        total += sum(new for new in added if new > 0)
        if min(added) >= 0:
            return total
    raise FilterLostError(f"{name!r} was cleared, deleted or lost while it was read", advice="merge again")


def _new_bits(before: bytes, piece: bytes) -> int:
    return (int.from_bytes(piece, "big") & ~int.from_bytes(before, "big")).bit_count()


def _warn(name: str, own: Saved, added: int) -> None:
    head = mergeable.whole(own)
    count = sum(part.header.count for part in own.parts) + added
    if added and count > head.capacity:
        _log.warning(
            "%r has about %d items after the merge and was made for capacity %d: it errs more often than its "
            "error_rate %s. Make larger filters, or use ScalingBloomFilter",
            *(name, count, head.capacity, head.error_rate),
        )
