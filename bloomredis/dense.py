"""Adding a dense batch, with an answer for each item, by whole segments of bits instead of probe by probe.

A segment is read, this process works out which items are new in it, and a script writes it back with their
bits set, unless anybody else has written there meanwhile; then nothing is changed, and it is read again.
So each item is decided in one atomic step, as always, provided that all of its bits lie in one segment.

The answers come segment by segment and not in the order of the batch, so they are handed out when the
last is known.  Until then every call keeps its lane.  Where the batch stops on its way, the new items of
all calls that were sent are owed their answers (`receipts`), and whoever asks again gets them: from this
process where they came, from the server where they did not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bloomredis import bulk, protocol, scripts
from bloomredis.blocked import Blocked
from bloomredis.errors import FilterLostError, OutcomeUnknownError, ServerRefusedError
from bloomredis.layouts import Layout
from bloomredis.probes import Probes
from bloomredis.protocol import Op, Reply, Unanswered
from bloomredis.receipts import Lane, Receipts
from bloomredis.stored import Arguments, Opened, Outdated, Stored

_ADD, _READ, _SWAP = map(scripts.load, ("add", "read", "swap"))

DENSE: Final = 4500
"""What adding the items of a segment must cost, in probes, for it to go as a whole: 1,500 items in one block.

From 500 to 800 on that is faster (`python -m benchmarks.threshold`); from 1,500 new ones on it is not more to
replicate either.
"""

FEWEST_ITEMS: Final = 256
"""Fewer are not worth a second round trip, however small the filter is."""

MOST_ITEMS: Final = 65_536
"""Items of one round: all of them may be in doubt at once, and `receipts.MOST_DOUBTS` are remembered."""

TRIES: Final = 2
"""How often a segment is read that others write to; then what is new in it is added probe by probe."""

Indices = NDArray[np.intp]


class Sent(NamedTuple):
    """A call whose answers were not handed out yet: its items, and what it told of them, if it did."""

    lane: Lane
    call: int
    items: Sequence[str | bytes]
    told: Sequence[bool] | None = None


def items_of_round(opened: Opened, left: int) -> int:
    """Return how many of so many items to add in the next round; 0 if they are not dense enough."""
    layout, num_bytes = opened.bitmap, (opened.bitmap.num_bits + 7) // 8
    in_one_segment = num_bytes <= bulk.SEGMENT_BYTES
    if not in_one_segment and not (isinstance(layout, Blocked) and layout.blocks_per_item == 1):
        return 0
    rounds = -(-left // MOST_ITEMS)
    items = -(-left // rounds)
    return items if _are_dense(items, layout, num_bytes) else 0


def _are_dense(items: int, layout: Layout, num_bytes: int) -> bool:
    return items * layout.cost * bulk.SEGMENT_BYTES > DENSE * num_bytes


class Round:
    """Items that are added together.

    :param probes: their bits.
    :param owed: where what was sent is noted, until the answers are handed out.
    """

    def __init__(
        self,
        stored: Stored,
        receipts: Receipts,
        opened: Opened,
        *,
        items: Sequence[str | bytes],
        probes: Probes,
        owed: list[Sent],
    ) -> None:
        self._stored = stored
        self._receipts = receipts
        self._opened = opened
        self._items = items
        self._probes = probes
        self._owed = owed
        self._bitmap = np.zeros((opened.bitmap.num_bits + 7) // 8, dtype=np.uint8)

    def add(self) -> Op[list[bool]]:
        """Add all items; say of each whether it was new."""
        answers = np.zeros(len(self._items), dtype=np.bool_)
        with self._owing():
            for first, members in _segments(self._probes):
                new = yield from self._add_segment(first, self._probes.take(members), members)
                answers[new] = True
        told: list[bool] = answers.tolist()
        return told

    @contextmanager
    def _owing(self) -> Iterator[None]:
        """Owe the answers of what was sent if the round does not end."""
        try:
            yield
        except (Outdated, FilterLostError):
            self._owed.clear()  # it was added to a filter that is gone, so in another one it is new
            raise
        except (Exception, GeneratorExit):
            for sent in self._owed:
                self._receipts.doubt(sent.items, sent.lane.name, sent.call, sent.told)
            raise
        for sent in self._owed:
            self._receipts.give_back(sent.lane)
        self._owed.clear()

    def _add_segment(self, first: int, probes: Probes, members: Indices) -> Op[Indices]:
        """Add the items that lie in a segment; return which were new."""
        new = members
        piece = self._bitmap[first : first + bulk.SEGMENT_BYTES]
        for _ in range(TRIES):
            found = yield from self._read(first, len(piece))
            piece[: len(found)] = np.frombuffer(found, dtype=np.uint8)
            piece[len(found) :] = 0
            new = members.take(probes.entered(self._bitmap))
            if not _are_dense(len(new), self._opened.bitmap, len(piece)):
                break
            if (yield from self._send(_SWAP, (first, found, piece.tobytes(), len(new)), new)):
                self._note([True] * len(new))
                return new
            self._receipts.give_back(self._owed.pop().lane)
        return (yield from self._add_by_probes(new))

    def _read(self, first: int, count: int) -> Op[bytes]:
        """Read a piece of the filter, which replicas have to have too: what is in it is called known."""
        try:
            found: bytes = yield from self._stored.run(_READ, self._opened, (first, count))
        except Unanswered as unanswered:
            raise unanswered.__cause__ or self._unknown(unanswered) from None
        return found

    def _add_by_probes(self, items: Indices) -> Op[Indices]:
        """Add items, some in each script; return which were new."""
        told: list[bool] = []
        for start in range(0, len(items), self._opened.items):
            some = items[start : start + self._opened.items]
            reply = yield from self._send(_ADD, (self._probes.take(some).packed(),), some)
            told += self._note(protocol.flags_of(reply))
        return items[told]

    def _send(self, script: scripts.Script, arguments: Arguments, items: Indices) -> Op[Reply]:
        """Run a script that adds these items, in a lane that is theirs until the round ends."""
        lane = self._receipts.take()
        call = lane.next_call()
        self._owed.append(Sent(lane, call, [self._items[i] for i in items.tolist()]))
        try:
            reply: Reply = yield from self._stored.run(script, self._opened, (*arguments, call), (lane.key,))
        except Unanswered as unanswered:
            raise self._unknown(unanswered) from unanswered
        except ServerRefusedError as refused:
            if refused.word in protocol.DEFINITE:
                self._owed.pop()
            raise
        return reply

    def _note(self, told: list[bool]) -> list[bool]:
        """Keep what the last call told of its items."""
        self._owed[-1] = self._owed[-1]._replace(told=told)
        return told

    def _unknown(self, unanswered: Unanswered) -> OutcomeUnknownError:
        return unanswered.public(self._stored.name, "ask again for the rest of the batch")


def _segments(probes: Probes) -> Iterator[tuple[int, Indices]]:
    """Yield of each segment that has items its first byte, and which items these are, in their order."""
    segments = probes.places().at[0] // bulk.SEGMENT_BYTES
    ordered = np.argsort(segments, kind="stable")
    numbers, starts = np.unique(segments[ordered], return_index=True)
    for number, members in zip(numbers.tolist(), np.split(ordered, starts[1:]), strict=True):
        yield number * bulk.SEGMENT_BYTES, members
