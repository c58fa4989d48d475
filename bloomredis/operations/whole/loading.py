"""Bulk load: many items become segments of bits, which are or-ed into the filter.

The bits of a batch are set in a bitmap of this process, and its segments are or-ed into the filter, which
costs the server a few memory copies where single probes cost it a command each.  The number of new items
follows from the bits that were there before.

A larger batch sends fewer bytes an item.  Its items are kept in a compact form until the previous bits are
known; a batch ends when these take three quarters of the bitmap's memory, or 8 MB.  (At an error rate of
1e-2 an item takes 10 bytes in the blocked layout, so 13 bytes are sent for it.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np

from bloomredis.bits.batch import AT_ONCE, BatchBits
from bloomredis.bits.encoding import Encoder, Item, RowError
from bloomredis.bits.layout import Layout
from bloomredis.errors import (
    BatchInterruptedError,
    FilterFullError,
    FilterLostError,
    OutcomeUnknownError,
)
from bloomredis.operations.items.membership import Membership
from bloomredis.operations.items.outcomes import PASSING, raise_unread
from bloomredis.protocol import forms, scripts
from bloomredis.protocol.replies import OutcomeMatters
from bloomredis.protocol.steps import Batches, Compute, Next, Op
from bloomredis.stored.state.base import Stored
from bloomredis.stored.state.handle import Handle, LayoutChanged

_OR_SEGMENT: Final = scripts.load("or_segment", forms.data)
_LOAD: Final = scripts.load("module_load", forms.integer)

LOAD_ITEMS: Final = 1 << 14
"""Items that a load reads at a time."""

SEGMENT_BYTES: Final = 128 << 10
"""Bytes that one script ors in: 0.2 to 0.6 ms of the server."""

DENSE: Final = 4096
"""Probes in a segment from which on it is cheaper as a whole (`python -m benchmarks.threshold`)."""

FEWEST_BYTES: Final = 8 << 20
"""Fewest bytes that a batch keeps of its items; less would save hardly any memory."""

MOST_BYTES: Final = 64 << 20
"""Most bytes that it keeps; a filter of more than twice this is not sent as segments."""


class Encoded(NamedTuple):
    """Items as they were read, and as they are hashed."""

    items: Sequence[Item]
    encoded: Sequence[str | bytes]


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of the bitmap, with the index of its first byte."""

    first: int
    data: bytes


class Load:
    """A batch of a load: its items, its bitmap, and then the bits that were there before."""

    def __init__(self, layout: Layout | None, encoder: Encoder) -> None:
        """Begin an empty batch.

        :param layout: None for a filter in several bitmaps, which has no segments.
        """
        self.layout = layout
        self._encoder = encoder
        self._num_bytes = 0 if layout is None else (layout.num_bits + 7) // 8
        self._has_segments = 0 < self._num_bytes <= 2 * MOST_BYTES
        self._full = min(max(self._num_bytes * 3 // 4, FEWEST_BYTES), MOST_BYTES)
        self._dense = DENSE * -(-self._num_bytes // SEGMENT_BYTES)
        self._bitmap = np.zeros(0, dtype=np.uint8)
        self._rows = 0  # that were read before
        self.is_first = True
        self._empty()

    def _empty(self) -> None:
        self.items = 0
        self.waiting: list[Encoded] = []  # too few to be sent as segments, so far
        self._candidates: list[BatchBits] = []  # the others, but for those whose bits earlier ones had set
        self._bytes = 0  # of all items in compact form
        self._is_sent = False
        self.was_empty = True

    def take(self, items: Sequence[Item]) -> None:
        """Add items to the batch.  Raises TypeError or ValueError for one that cannot be encoded."""
        try:
            self.waiting.append(Encoded(items, self._encoder.encode_all(items)))
        except RowError as error:
            error.row += self._rows
            raise
        self.items += len(items)
        self._rows += len(items)
        self.is_first = self._rows == self.items
        if self.layout is not None and self.is_dense:
            for each in self.waiting:
                self._enter(self.layout, each.encoded)
            self.waiting.clear()

    def _enter(self, layout: Layout, encoded: Sequence[str | bytes]) -> None:
        if not self._bitmap.size:
            self._bitmap = np.zeros(self._num_bytes, dtype=np.uint8)
        for start in range(0, len(encoded), AT_ONCE):
            probes = layout.hashed(encoded[start : start + AT_ONCE])
            self._bytes += probes.nbytes
            self._candidates.append(probes.insert(self._bitmap))

    @property
    def is_full(self) -> bool:
        """True if the batch has to be sent."""
        return self._bytes >= self._full or not self._has_segments

    @property
    def is_dense(self) -> bool:
        """True if the items are better sent as segments than probe by probe."""
        return (
            self.layout is not None
            and self._has_segments
            and self.items * self.layout.num_hashes >= self._dense
        )

    def segments(self) -> Iterator[Segment]:
        """Yield the segments that have a bit set; call `record_previous` with each before the next.

        A second call begins again, to send all of them to another filter.
        """
        if self._is_sent:
            self._bitmap.fill(0)
            for probes in self._candidates:
                probes.addresses().set(self._bitmap)
        self._is_sent, self.was_empty = True, True
        for first in range(0, self._num_bytes, SEGMENT_BYTES):
            piece = self._bitmap[first : first + SEGMENT_BYTES]
            if piece.any():
                yield Segment(first, piece.tobytes())

    def record_previous(self, segment: Segment, found: bytes | bytearray | memoryview) -> None:
        """Record the segment's previous bits, in the place of those that were sent."""
        piece = self._bitmap[segment.first : segment.first + len(segment.data)]
        piece[: len(found)] = np.frombuffer(found, dtype=np.uint8)
        piece[len(found) :] = 0
        self.was_empty = self.was_empty and not piece.any()

    def finish(self) -> int:
        """Return the number of new items, and empty the batch.

        An item counts as new if it was not there before and no equal one came before it, even if all its bits
        were set by others among the 8,192 that were hashed with it.
        """
        if self.was_empty:
            added = sum(map(len, self._candidates))
        else:
            added = sum(len(probes.addresses().missing(self._bitmap)) for probes in self._candidates)
        self._bitmap.fill(0)
        self._empty()
        return added


def load(
    stored: Stored,
    membership: Membership,
    encoder: Encoder,
    source: Batches,
    progress: Callable[[int], object] | None,
) -> Op[int]:
    """Add items as fast as possible; return how many were read.

    :param source: an iterator of batches of `LOAD_ITEMS`.
    """
    handle = stored.handle or (yield from stored.open())
    batches = Load(stored.segmented(handle), encoder)
    done = 0
    while True:
        batch: list[object] | None = yield Next(source, batches.take)
        if batches.items and (batches.is_full or not batch):
            before, done = done, done + batches.items
            with counted(before), OutcomeMatters(stored.name):
                sent_to = yield from _send(stored, membership, batches, handle.generation)
                # There is nothing to compare with if the segments were empty.
                added = batches.finish() if batches.was_empty else (yield Compute(batches.finish))
                if sent_to and added:
                    yield from membership.add_count(sent_to, added)
            if progress is not None:
                progress(done)
        if not batch:
            return done


@contextmanager
def counted(done: int) -> Iterator[None]:
    """Say in an error how many items are in: those after them were read, and are not kept."""
    try:
        yield
    except (*PASSING, FilterFullError) as error:
        message, *others = error.args
        error.args = (
            f"{message}; load() has added the first {done} items, and may be given all again",
            *others,
        )
        raise


def load_one_batch(
    stored: Stored, membership: Membership, encoder: Encoder, items: Sequence[Any]
) -> Op[None]:
    """Add some items of a load; they are a batch of their own."""
    handle = yield from stored.acquire()
    batch = Load(stored.segmented(handle), encoder)
    batch.take(items)
    with OutcomeMatters(stored.name):
        sent_to = yield from _send(stored, membership, batch, handle.generation)
        added = batch.finish()
        if sent_to and added:
            yield from membership.add_count(sent_to, added)


def _send(stored: Stored, membership: Membership, load: Load, generation: bytes) -> Op[Handle | None]:
    """Send a batch; return the handle of the filter if it got segments, and has yet to count the items.

    :param generation: that of the filter when the load began.
    """
    for at, each in enumerate(load.waiting):
        try:
            membership.loaded += yield from membership.add_unasked(each.encoded, each.items)
        except (BatchInterruptedError, *PASSING) as error:
            rest = [item for later in load.waiting[at:] for item in later.items]
            raise_unread(error, "load", rest, is_alone=at == 0 and load.is_first)
    sent_to = None
    while load.is_dense and sent_to is None:
        # A filter that was lost may have been replaced meanwhile.
        handle = stored.handle or (yield from stored.open())
        if stored.segmented(handle) != load.layout:
            _raise_other_bits(stored.name, is_same=handle.generation == generation)
        with suppress(LayoutChanged):
            temporaries = (stored.auxiliary + b"segment:old", stored.auxiliary + b"segment:new")
            for segment in load.segments():
                arguments = (segment.first, segment.data)
                found = yield from stored.run(_OR_SEGMENT, handle, arguments, temporaries)
                load.record_previous(segment, found)
            sent_to = handle
    return sent_to


def _raise_other_bits(name: str, *, is_same: bool) -> NoReturn:
    """Raise the error for a batch whose bits are of no use to the filter by now.

    :param is_same: the filter has the generation for which they were made.
    """
    if is_same:
        raise OutcomeUnknownError(f"{name!r} has been rebuilt, or begun to be, in the middle of a batch")
    raise FilterLostError(f"{name!r} was replaced by a filter with other bits; load again")


class _Rows:
    """The batch that was read last, encoded."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.done = 0
        self.encoded: Sequence[str | bytes] = ()

    def take(self, items: Sequence[Any]) -> None:
        """Encode a batch.  Raises TypeError or ValueError for an item that cannot be encoded."""
        try:
            self.encoded = self._encoder.encode_all(items)
        except RowError as error:
            error.row += self.done
            raise


def load_items(
    stored: Stored, encoder: Encoder, source: Batches, progress: Callable[[int], object] | None
) -> Op[int]:
    """Add items, some in each script; return how many were read.

    :param source: an iterator of batches.
    """
    rows = _Rows(encoder)
    while (yield Next(source, rows.take)):
        with counted(rows.done), OutcomeMatters(stored.name):
            yield from _send_items(stored, rows.encoded)
        rows.done += len(rows.encoded)
        if progress is not None:
            progress(rows.done)
    return rows.done


def _send_items(stored: Stored, encoded: Sequence[str | bytes]) -> Op[None]:
    handle = yield from stored.acquire()
    for start in range(0, len(encoded), handle.items):
        piece = encoded[start : start + handle.items]

        def work(handle: Handle, piece: Sequence[str | bytes] = piece) -> Op[int]:
            return stored.run(_LOAD, handle, [handle.layout.pack(piece)])

        yield from stored.attempt(work)
