"""Bulk load: many items become segments of bits, which are OR-ed into the filter.

The bits of a batch are set in a bitmap of this process.  Its segments are OR-ed into the filter, which costs
the server a few memory copies; single probes would cost it a command each.  The previous bits of the segments
tell how many items were new.

A larger batch sends fewer bytes for each item.  The items are kept in a compact form until the previous bits
are known.  A batch ends when its items take three quarters of the bitmap's memory, but at least 8 MB and at
most 64 MB.  (At an error rate of 1e-2 an item takes 10 bytes of memory in the blocked layout.  A batch of
three quarters then sends 10 / 0.75 = 13 bytes for each item.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from bloomredis.bits.arrays import np
from bloomredis.bits.batch import BatchBits, Bytes
from bloomredis.bits.encoding import Encoder, Item, rows_from
from bloomredis.bits.hashing import DIGEST_BYTES, HASHED_AT_ONCE, Digests
from bloomredis.bits.layout import Layout
from bloomredis.errors import BatchInterruptedError, BloomError, FilterFullError, FilterLostError
from bloomredis.operations.items.outcomes import TRANSIENT, interrupted_load, raise_batch_of_stream
from bloomredis.operations.whole import layer_bits
from bloomredis.operations.whole.layer_bits import Hashed, LayerBits
from bloomredis.operations.whole.load_calls import LoadCalls, LoadedFilter
from bloomredis.protocol.clock import next_round
from bloomredis.protocol.replies import OutcomeMatters
from bloomredis.protocol.steps import Batches, Compute, Next, Op
from bloomredis.stored.state.base import Stored
from bloomredis.stored.state.handle import Handle, Layer, LayoutChanged

LOAD_ITEMS: Final = 1 << 14
"""Items that a load reads at a time."""

SEGMENT_BYTES: Final = 128 << 10
"""Bytes that one script ORs into the filter, in 0.2 to 0.6 ms of the server's time."""

VAIN_ROUNDS: Final = 3
"""A batch that could not be sent so many times in a row, since the layers had changed, is sent as probes."""

DENSE: Final = 4096
"""At this many probes a segment becomes cheaper than single probes (`python -m benchmarks.threshold`)."""

FEWEST_BYTES: Final = 8 << 20
"""The lower limit of the memory for a batch's items; a smaller one would save hardly any memory."""

MOST_BYTES: Final = 64 << 20
"""The upper limit of the memory for a batch's items.

A filter of more than twice this size is loaded probe by probe."""


class WaitingItems(NamedTuple):
    """Items that wait: as they were read, encoded, and in the form to hash (encoded items or digests)."""

    items: Sequence[Item]
    encoded: Sequence[str | bytes]
    hashed: Sequence[str | bytes]

    def copied(self) -> WaitingItems:
        """Return a copy with its own lists, so that it keeps no other items in memory."""
        encoded = [*self.encoded]
        return WaitingItems([*self.items], encoded, encoded if self.hashed is self.encoded else self.hashed)

    def rest(self, start: int) -> WaitingItems:
        """Return the items from index `start` on."""
        return WaitingItems(self.items[start:], self.encoded[start:], self.hashed[start:])


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of the bitmap, with the index of its first byte."""

    first: int
    data: bytes


class Load:
    """A batch of a load: its items and its bitmap.

    Items wait until there are enough of them for segments; then they are entered into the bitmap.  After a
    segment is sent, the filter's previous bits replace the segment's bits in the bitmap.
    """

    def __init__(
        self, layout: Layout | None, encoder: Encoder, layers: Sequence[Layer] = (), parts: int = 1
    ) -> None:
        """Begin an empty batch.

        :param layout: layout of the bitmap that takes segments; None for a filter without such a bitmap.
        :param layers: the layers, whose bits are read before items are entered; empty without a record.
        :param parts: number of batches that share the memory, each for a part of a filter.
        """
        self._encoder = encoder
        self._parts = parts
        self._rows = 0  # items read so far
        self.is_first = True
        self.items = 0
        self.waiting: list[WaitingItems] = []
        self.layers: LayerBits | None = None
        self.before: LayerBits | None = None  # the layers of the last reading
        self.vain_rounds = 0  # attempts in a row to send a batch whose layers had changed
        self._begin_batch()
        self.use_layout(layout, layers)

    def use_layout(self, layout: Layout | None, layers: Sequence[Layer]) -> None:
        """Adopt the present layout and layers of the filter; the bitmap becomes empty."""
        sizes = [(each.layout.num_bits + 7) // 8 for each in layers]
        self.layout, self.has_layers = layout, bool(layers)
        self._num_bytes = 0 if layout is None else (layout.num_bits + 7) // 8
        self._has_segments = 0 < sum(sizes or [self._num_bytes]) <= 2 * MOST_BYTES // self._parts
        fewest, most = FEWEST_BYTES // self._parts, MOST_BYTES // self._parts
        self._full = min(max(self._num_bytes * 3 // 4, fewest), most)
        self._dense = DENSE * sum(-(-size // SEGMENT_BYTES) for size in sizes or [self._num_bytes])
        self._bitmap = np.zeros(0, dtype=np.uint8)

    def _begin_batch(self) -> None:
        self.entered = 0
        self._digests: list[Digests] = []  # digests of all entered items, if there are layers
        self._candidates: list[BatchBits | Hashed] = []  # entered items not known to be in the filter
        self._bytes = 0  # memory of the entered items
        self._is_sent = self._is_cut = False
        self.was_known = True

    @property
    def done(self) -> int:
        """Number of items that were read and are in the filter."""
        return self._rows - self.items

    def append_items(self, items: Sequence[Item]) -> None:
        """Encode items and add them to the batch.

        :raises TypeError, ValueError: an item cannot be encoded.
        """
        with rows_from(self._rows):
            encoded = self._encoder.encode_all(items)
        self.append(WaitingItems(items, encoded, encoded))

    def append(self, waiting: WaitingItems) -> None:
        """Add encoded items to the batch."""
        self.waiting.append(waiting)
        count = len(waiting.encoded)
        self.items += count
        self._rows += count
        self.is_first = self._rows == self.items
        if self.is_dense and not self.lacks_bits:
            self.set_bits()
        if self.waiting and not isinstance(waiting.items, list):
            self.waiting[-1] = self.waiting[-1].copied()

    @property
    def lacks_bits(self) -> bool:
        """True if the filter has layers whose bits have not been read."""
        return self.has_layers and self.layers is None

    def set_bits(self) -> None:
        """Set the bits of the waiting items in the bitmap; stop where the room of the newest layer ends."""
        if not self._bitmap.size:
            self._bitmap = (
                np.zeros(self._num_bytes, np.uint8) if not self.layers else self.layers.newest.copy()
            )
        while self.waiting and not self._is_cut:
            waiting = self.waiting.pop(0)
            for start in range(0, len(waiting.hashed), HASHED_AT_ONCE):
                piece = waiting.hashed[start : start + HASHED_AT_ONCE]
                entered = self._set_new_bits(self.layers, piece) if self.layers else self._set_all_bits(piece)
                self.entered += entered
                if entered < len(piece):
                    self.waiting.insert(0, waiting.rest(start + entered))
                    self._is_cut = True
                    break

    def _set_all_bits(self, encoded: Sequence[str | bytes]) -> int:
        probes = cast("Layout", self.layout).hashed(encoded)
        self._bytes += probes.nbytes
        self._candidates.append(probes.insert(self._bitmap))
        return len(encoded)

    def _set_new_bits(self, layers: LayerBits, encoded: Sequence[str | bytes]) -> int:
        """Set the bits of items that are in no layer; return how many items come before the room ends."""
        digests, layout = Digests.of(encoded), layers.layer.layout
        absent, entered = layers.absent(digests), len(digests)
        if absent.size:
            probes = layout.hashed(digests.take(absent))
            addresses = probes.addresses()
            missing = addresses.missing(self._bitmap)
            room = max(1, layers.room) - self.candidates  # if there is no room, the script says so
            if missing.size > room:
                entered, missing = int(absent[missing[room]]), missing[:room]
            if missing.size < absent.size:
                absent, probes, addresses = absent[missing], probes.take(missing), addresses.take(missing)
            if missing.size:
                addresses.set(self._bitmap)
                self._candidates.append(Hashed(layout, digests.take(absent[probes.first_occurrences()])))
        self._digests.append(digests[:entered])
        self._bytes += DIGEST_BYTES * entered
        return entered

    @property
    def candidates(self) -> int:
        """Number of entered items that are not known to be in the filter."""
        return sum(map(len, self._candidates))

    @property
    def _uses_segments(self) -> bool:
        """True if the filter takes segments, and its layers change seldom enough."""
        return self._has_segments and self.vain_rounds < VAIN_ROUNDS

    @property
    def is_full(self) -> bool:
        """True if the batch must be sent."""
        return self._bytes >= self._full or self._is_cut or not self._uses_segments

    @property
    def is_dense(self) -> bool:
        """True if segments are cheaper for the items than single probes."""
        if self.layout is None or not self._uses_segments:
            return False
        return self.items * self.layout.num_hashes >= self._dense or self.has_only_digests

    @property
    def has_only_digests(self) -> bool:
        """True if the batch could not be sent before: of its first items only the digests are left."""
        return bool(self.waiting) and isinstance(self.waiting[0].encoded, Digests)

    def segments(self) -> Iterator[Segment]:
        """Yield the segments with bits to set; call `record_previous` for each before the next.

        A segment has the known bits too, not only new ones: a server that has lost bits gets them back.  A
        second call begins again, to send all segments to another filter.
        """
        if self._is_sent:
            self._bitmap.fill(0)
            for probes in self._candidates:
                probes.addresses().set(self._bitmap)
        self._is_sent, self.was_known = True, True
        for first in range(0, self._num_bytes, SEGMENT_BYTES):
            piece = self._bitmap[first : first + SEGMENT_BYTES]
            known = self._known(first, piece)
            if piece.any() if known is None else (piece != known).any():
                yield Segment(first, piece.tobytes())

    def _known(self, first: int, piece: Bytes) -> Bytes | None:
        return None if self.layers is None else self.layers.newest[first : first + len(piece)]

    def record_previous(self, segment: Segment, found: bytes | bytearray | memoryview | None) -> None:
        """Replace the bits of a sent segment by its previous bits in the filter.

        :param found: these bits; None if they are unknown.  In layers the items then keep the count that was
            reserved for them; else they count as present.
        """
        piece = self._bitmap[segment.first : segment.first + len(segment.data)]
        known = self._known(segment.first, piece)
        if found is None:
            found = segment.data if known is None else known.tobytes()
        piece[: len(found)] = np.frombuffer(found, dtype=np.uint8)
        piece[len(found) :] = 0
        if known is None:
            self.was_known = self.was_known and not piece.any()
            return
        self.was_known = self.was_known and bool((piece == known).all())
        np.bitwise_or(piece, np.frombuffer(segment.data, np.uint8), out=known)

    def new(self) -> int:
        """Return the number of new items.

        An item is new if it was not in the filter and no equal item came before it.  Up to 8,192 items are
        hashed together: among these, an item is new even if the others have set all its bits.
        """
        if self.was_known:
            return self.candidates
        return sum(len(probes.addresses().missing(self._bitmap)) for probes in self._candidates)

    def new_in_layer(self) -> int:
        """Return how many new items have all their bits in the layer, after only some segments were sent."""
        bits = cast("LayerBits", self.layers).newest
        return sum(len(each) - len(each.addresses().missing(bits)) for each in self._candidates)

    def finish_batch(self) -> int:
        """Return the number of new items, and remove the sent items from the batch."""
        added = self.new()
        self.drop_sent()
        return added

    def drop_sent(self) -> None:
        """Remove the sent items from the batch."""
        if not self.entered:
            self.waiting.clear()
        self.items -= self.entered or self.items
        if self.layers is None or not self._bitmap.size:
            self._bitmap.fill(0)
        else:
            self._bitmap[:] = self.layers.newest
        self._begin_batch()

    def undo_entering(self, layers: LayerBits | None) -> None:
        """Let all entered items wait again.

        :param layers: the known layers; None if they must be read.
        """
        self.waiting[:0] = [WaitingItems((), digests, digests) for digests in self._digests]
        self.layers, self.before = layers, self.layers
        self._begin_batch()
        self._bitmap = np.zeros(0, dtype=np.uint8)


def load(
    loaded: LoadedFilter,
    encoder: Encoder,
    source: Batches,
    progress: Callable[[int], object] | None,
) -> Op[int]:
    """Add items as fast as possible; return the number of items read.

    :param source: an iterator of batches of `LOAD_ITEMS`.
    """
    calls, stored = LoadCalls(loaded), loaded.stored
    handle = stored.handle or (yield from stored.open())
    batches = Load(stored.segmented(handle), encoder, stored.recorded_layers(handle))
    done = 0
    while True:
        batch: list[object] | None = yield Next(source, batches.append_items)
        with counted(lambda: batches.done):
            yield from send_full(calls, batches, ends=not batch)
        if batches.done > done:
            done = batches.done
            if progress is not None:
                progress(done)
        if not batch:
            return done


@contextmanager
def counted(done: Callable[[], int]) -> Iterator[None]:
    """Say in an error how many items are in the filter; the items read after them are dropped.

    If none is in, the error itself tells, but for a full filter: the whole call can be made again.
    """
    try:
        yield
    except BatchInterruptedError as error:
        error.results, error.done = [], done()
        cause = error.__cause__
        reason = cause.problem if isinstance(cause, BloomError) else cause
        error.restate(f"{error.done} items were added, then: {reason}")
        raise
    except TRANSIENT as error:
        if not done() and not isinstance(error, FilterFullError):
            raise
        raise interrupted_load(error, done()) from error


def send_full(calls: LoadCalls, load: Load, *, ends: bool) -> Op[None]:
    """Send the batch whenever it is full; if the load `ends`, send all items."""
    stored = calls.stored
    with OutcomeMatters(stored.name):
        while True:
            if load.is_dense and load.waiting and not load.is_full:
                yield from _read_layers(stored, load)
            if load.is_dense and load.waiting and not load.is_full:
                yield Compute(load.set_bits)
            if not load.items or not (load.is_full or ends):
                return
            if load.layers is not None and load.entered:
                yield from _send_to_layers(calls, load, load.layers)
            else:
                yield from _send_batch(calls, load)


def _read_layers(stored: Stored, load: Load) -> Op[None]:
    """Read the bits of all layers, if they are needed and worth it."""
    if load.lacks_bits:
        handle = yield from stored.acquire()
        layers = stored.recorded_layers(handle)
        load.use_layout(stored.segmented(handle), layers)
        if load.is_dense:
            load.layers = yield from layer_bits.read(handle, layers, load.before)
            load.before = None


def _send_batch(calls: LoadCalls, load: Load) -> Op[None]:
    """Send a batch to a filter in one bitmap, or probe by probe, and count the new items."""
    for at, each in enumerate(load.waiting):
        try:
            yield from calls.membership.add(each.encoded, each.items, unasked=True)
        except (BatchInterruptedError, *TRANSIENT) as error:
            if load.has_only_digests:  # only digests of the items are left, not the items for `rest`
                raise (error.__cause__ or error) from None
            load.items -= sum(len(sent.encoded) for sent in load.waiting[:at])
            load.items -= len(getattr(error, "results", ()))
            rest = [item for later in load.waiting[at:] for item in later.items]
            raise_batch_of_stream(error, "update", rest, can_repeat_all=at == 0 and load.is_first)
    stored, sent_to, rounds = calls.stored, None, None
    while load.entered and sent_to is None:
        # The filter may have been lost and replaced meanwhile.
        handle = stored.handle or (yield from stored.open())
        if stored.segmented(handle) != load.layout:
            raise FilterLostError(
                f"{stored.name!r} was replaced by a filter of another size or layout",
                advice="call update() again with all items",
            )
        try:
            yield from _or_segments(calls, handle, load)
        except LayoutChanged:
            rounds = yield from next_round(rounds, stored.name)
        else:
            sent_to = handle
    # If the previous segments were empty, all candidates are new, and counting takes no time.
    added = load.finish_batch() if load.was_known else (yield Compute(load.finish_batch))
    if sent_to and added:
        yield from calls.add_count(sent_to, added)
        yield from stored.look_at_count(added)
    load.vain_rounds = 0


def _send_to_layers(calls: LoadCalls, load: Load, layers: LayerBits) -> Op[None]:
    """Send a batch to the newest layer; if there is a newer layer meanwhile, the whole batch waits again.

    The items are counted first: if the process dies in between, no layer has more items than its count.
    """
    try:
        reserved = yield from _reserve(calls, load, layers)
    except LayoutChanged:
        load.vain_rounds += 1
        load.undo_entering(None)
        return
    changed = False
    try:
        yield from _or_segments(calls, layers.handle, load)
    except LayoutChanged:
        changed = True
    if changed or not load.was_known:
        new: int = yield Compute(load.new_in_layer if changed else load.new)
    else:
        new = load.candidates
    yield from calls.count_reserved(layers.layer, reserved, new)
    layers.room += reserved - new
    if changed:
        load.vain_rounds += 1
        load.undo_entering(None)
    else:
        load.vain_rounds = 0
        load.drop_sent()


def _reserve(calls: LoadCalls, load: Load, layers: LayerBits) -> Op[int]:
    """Count the new items of a batch, which is cut where the room ends; return the number counted."""
    reserved = yield from calls.reserve(layers.handle, load.candidates)
    layers.room -= reserved
    if reserved < load.candidates:  # other clients have added items meanwhile
        layers.room = reserved
        load.undo_entering(layers)
        yield Compute(load.set_bits)
        layers.room = 0
    return reserved


def _or_segments(calls: LoadCalls, handle: Handle, load: Load) -> Op[None]:
    stored = calls.stored
    temporaries = (stored.auxiliary + b"segment:old", stored.auxiliary + b"segment:new")
    for segment in load.segments():
        found = yield from calls.or_segment(handle, segment.first, segment.data, temporaries)
        load.record_previous(segment, found)
