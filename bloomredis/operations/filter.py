"""What a filter does, as operations without I/O."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, ClassVar, Final, Self, TypeVar

import numpy as np

from bloomredis import arguments
from bloomredis.arguments import OnLost, listed
from bloomredis.bits import batch, encoding
from bloomredis.bits.batch import HashedBatch
from bloomredis.bits.bitmap import Bits
from bloomredis.bits.encoding import Item
from bloomredis.errors import BatchInterruptedError, FilterLostError
from bloomredis.operations import info, options
from bloomredis.operations.claims import Claims, Held
from bloomredis.operations.info import FilterInfo
from bloomredis.operations.loading import Load
from bloomredis.operations.local_cache import LocalCache
from bloomredis.operations.membership import ADD, CONTAINS, Calls, doubtful
from bloomredis.operations.options import stored
from bloomredis.operations.pipelines import AnyPipeline, Pipelines
from bloomredis.operations.snapshot import PIECE_BYTES, LocalFilter
from bloomredis.protocol import scripts, steps
from bloomredis.protocol.keys import beside
from bloomredis.protocol.receipts import Receipts, parse_token
from bloomredis.protocol.steps import Op
from bloomredis.stored.base import Description, Handle, LayoutChanged, Stored
from bloomredis.stored.foreign import ForeignLayout
from bloomredis.stored.header import COUNTING, FILTER

_READ, _UNITE = scripts.load("read"), scripts.load("or_segment")
_log = logging.getLogger("bloomredis")

I = TypeVar("I", bound=Item)  # noqa: E741 - the items
C = TypeVar("C")
DEDUPE_ITEMS: Final = 1000
"""Items that `dedupe` reads ahead and sends together."""

LOAD_ITEMS: Final = 1 << 14
"""Items that `load` reads at a time."""

_BITCOUNT_BYTES: Final = 4 << 20  # counted at a time, under 2 ms


class FilterOperations:
    """A Bloom filter in one key of a Redis or Valkey server.

    Of any number of concurrent `add(x)`, in any number of threads, processes and machines, exactly
    one is told that x was new.  An item that was added is always found; one that was not is taken
    for present with a probability of about `error_rate` once `capacity` items are in.

    :param client: a client of redis-py or valkey-py; nothing is sent before the first call.
    :param name: the key.
    :param capacity: items that the filter is made for.  With `capacity` and `error_rate` a missing
        filter is created at first use and a stored one is checked; without, it must exist.
    :param error_rate: the false-positive rate at `capacity`, strictly between 0 and 1.
    :param layout: `"blocked"`, whose calls are faster, or `"classic"`, which takes 6% to 16% less memory;
        None for what is stored (a new filter gets the default, blocked).  Or a layout from
        `bloomredis.compat`, for a bitmap that another system writes too: that has no header, so the
        layout says how large it is, and its loss cannot be noticed.
    :param ttl: seconds (or a timedelta) from creation until the filter expires; None for never.
    :param refresh_ttl: let each insert renew the `ttl`; only with a layout from `bloomredis.compat`.
    :param on_lost: what to do when the filter that this object has used is gone or another one:
        `"raise"` raises `FilterLostError`; `"recreate"` logs a warning and goes on with what is there
        now, or a new filter; a callable is given the error first, and may raise it.
    :param retry_safe: let a call that is sent again get the answer of its first execution, so that a
        lost reply never turns into "already there".
    :param encode: turns an item into bytes, for items that are not str, bytes or int.
    :param coalesce: let concurrent calls share round trips: those of tasks in asyncio, where None means
        True, or of threads other than the main one, where None means False.
    :param min_replicas: replicas that must have a write before the call returns; fewer raise
        `OutcomeUnknownError`.  On a cluster they are those of the node that has the key.
    :param replica_timeout: seconds to wait for them.
    :param local_cache: answer from a copy of the filter in this process (as large as the filter) where
        that says "there", which is right while the generation stands; everything else asks the server.
    :param local_cache_check: seconds (or a timedelta) until the generation is checked again, which is
        how long a `clear()` by another client may go unnoticed.
    :raises ValueError, TypeError: for bad arguments, before any I/O.
    """

    kind: ClassVar[int] = FILTER
    """What its header says it is."""

    def __init__(
        self,
        name: str,
        *,
        capacity: int | None = None,
        error_rate: float | None = None,
        layout: str | ForeignLayout | None = None,
        ttl: float | timedelta | None = None,
        refresh_ttl: bool = False,
        on_lost: OnLost = "raise",
        retry_safe: bool = True,
        encode: Callable[[Any], bytes] | None = None,
        coalesce: bool | None = None,
        min_replicas: int = 0,
        replica_timeout: float | timedelta = 1.0,
        local_cache: bool = False,
        local_cache_check: float | timedelta = 1.0,
    ) -> None:
        under_key = self._make_stored(
            name,
            capacity=capacity,
            error_rate=error_rate,
            layout=layout,
            ttl=ttl,
            refresh_ttl=refresh_ttl,
            on_lost=on_lost,
            wait=options.wait(min_replicas, replica_timeout),
            kind=self.kind,
        )
        check = arguments.milliseconds("local_cache_check", local_cache_check) / 1000
        self._assemble(
            under_key,
            foreign=None if layout is None or isinstance(layout, str) else layout,
            retry_safe=retry_safe,
            encode=encode,
            coalesce=coalesce,
            cache=LocalCache(check) if local_cache else None,
        )
        if local_cache and not self.is_one_bitmap:
            raise ValueError(f"local_cache=True needs a filter in one bitmap, and {name!r} is in several")

    def _assemble(
        self,
        under_key: Stored,
        *,
        foreign: ForeignLayout | None = None,
        cache: LocalCache | None = None,
        retry_safe: bool = True,
        encode: Callable[[Any], bytes] | None = None,
        coalesce: bool | None = None,
    ) -> None:
        """Put the operations together over what is stored under a key."""
        self._stored = under_key
        self._foreign = foreign
        self._cache = cache
        self._receipts = Receipts(under_key.key, counts=self.kind == COUNTING)
        beginning = beside(under_key.key) + b"segment:"
        self._temporaries = (beginning + b"old", beginning + b"new")  # gone when the script ends
        self._retry_safe = retry_safe
        self._calls = Calls(under_key, self._receipts, retry_safe=retry_safe)
        self._claims = Claims(under_key, self._receipts, retry_safe=retry_safe)
        self._pipelines = Pipelines(self._receipts)
        self.min_replicas = under_key.wait.replicas if under_key.wait else 0
        self.servers = 1
        self._custom_encode = encode
        self._plain = encode is None and foreign is None
        self.coalesce = coalesce

    @classmethod
    def from_server(cls, name: str) -> Self:
        """Return the operations of a filter whose parameters are those that are stored."""
        return cls(name)

    def _make_stored(self, name: str, **parameters: Any) -> Stored:
        """Return what is under the key, nothing being known of it yet."""
        return stored(name, **parameters)

    @property
    def name(self) -> str:
        """The filter's key."""
        return self._stored.name

    @property
    def layout(self) -> ForeignLayout | None:
        """The layout of another system that the filter was given, None for one of this library's."""
        return self._foreign

    @property
    def is_one_bitmap(self) -> bool:
        """Whether all bits of an item lie in one string."""
        return self._stored.is_one_bitmap

    # -- items

    def add(self, item: Item, *, token: str | None = None) -> Op[bool]:
        """Add an item; True if this call was the first to add it.

        Exactly one of any number of concurrent callers gets True.  One round trip.

        :param token: that of an `OutcomeUnknownError`; the answer is that of the call it came from.
        :raises OutcomeUnknownError: no answer came; its `token` makes it safe to ask again.
        """
        place = None if token is None else parse_token(token)
        encoded = self.encode(item)
        sent = time.monotonic()
        new = yield from self._calls.add_one(encoded, place)
        if self._cache is not None:
            yield from self._learn(self._cache, sent, encoded, int(not new))
        return new

    def contains(self, item: Item) -> Op[bool]:
        """Return whether an item is in the filter: False is certain, True errs at the error rate.

        One round trip.
        """
        encoded = self.encode(item)
        sent = time.monotonic()
        there = yield from self._calls.test_one(encoded)
        if self._cache is not None:
            yield from self._learn(self._cache, sent, encoded if there else None, int(there))
        return there

    def add_many(self, items: Iterable[Item]) -> Op[list[bool]]:
        """Add items; say of each, in order, whether it was new.

        The first of two equal items is new, the second is not.  A batch is cut so that no script
        runs longer than about 2 ms; each script is atomic, the batch as a whole is not.  All items
        are checked before the first is sent, so an iterator is read to its end at once.

        :raises BatchInterruptedError: it stopped on its way; the error has the answers so far.
        """
        batch = listed(items)
        encoded = self.encode_all(batch)
        return (yield from self.add_encoded(encoded, batch)) if batch else []

    def add_encoded(self, encoded: Sequence[str | bytes], items: Sequence[Item]) -> Op[list[bool]]:
        """Do what `add_many` does with `items`, which have been encoded."""
        if self._cache is None:
            return (yield from self._calls.add(encoded, items))
        asked, ask = yield from self._unknown(self._cache, encoded)
        answers = [False] * len(encoded)
        sent = time.monotonic()
        try:
            told = (yield from self._calls.add(asked, [items[i] for i in ask])) if ask else []
        except BatchInterruptedError as error:
            until = ask[len(error.results)]
            merged = _merged(answers[:until], ask, error.results)
            raise BatchInterruptedError(error.args[0], merged, items[until:]) from error.__cause__
        if ask:
            yield from self._learn(self._cache, sent, asked, told.count(False))
        return _merged(answers, ask, told)

    def contains_many(self, items: Iterable[Item]) -> Op[list[bool]]:
        """Say of each of the items, in order, whether it is in the filter."""
        encoded = self.encode_all(listed(items))
        return (yield from self.contains_encoded(encoded)) if encoded else []

    def contains_encoded(self, encoded: Sequence[str | bytes]) -> Op[list[bool]]:
        """Do what `contains_many` does with items that have been encoded."""
        if self._cache is None:
            return (yield from self._calls.test(encoded))
        asked, ask = yield from self._unknown(self._cache, encoded)
        sent = time.monotonic()
        told = (yield from self._calls.test(asked)) if ask else []
        if ask:
            yield from self._learn(self._cache, sent, asked.take(np.flatnonzero(told)), told.count(True))
        return _merged([True] * len(encoded), ask, told)

    def encode(self, item: Item) -> bytes:
        """Return the bytes that stand for an item, or raise for what is none."""
        if self._custom_encode is None:
            return (self._foreign or encoding).encode(item)
        encoded = self._custom_encode(item)
        if not isinstance(encoded, bytes):
            raise TypeError(f"encode must return bytes, not {type(encoded).__name__} for {item!r}")
        return self._foreign.encode(encoded) if self._foreign else encoded

    def encode_all(self, items: Sequence[Item]) -> Sequence[str | bytes]:
        """Return what stands for each item in a batch, or raise for what is none."""
        if self._custom_encode is None:
            return (self._foreign or encoding).encode_all(items)
        return [self.encode(item) for item in items]

    def encode_for_batch(self, item: Item) -> str | bytes:
        """Return what stands for an item in a batch, or raise for what is none; the cheapest for one."""
        if self._plain and (type(item) is bytes or (type(item) is str and item.isascii())):
            return item
        return self.encode(item)

    # -- bulk

    def loading(self, handle: Handle) -> Load:
        """Return what collects the items of a load."""
        return Load(handle.bitmap if self.is_one_bitmap else None, self)

    def load(self, load: Load) -> Op[Handle | None]:
        """Add items as fast as possible, without an answer for each; return how many were read.

        They are collected in batches that are the larger, the larger the filter is.  A batch that is dense
        enough is or-ed into the filter as segments of bits, a sparser one is added probe by probe; either way
        the server is never busy for longer than about 2 ms at a time, each segment is set atomically, and
        others may add meanwhile.

        Memory does not grow with the number of items, but with the filter's size: some 10 MB, and twice as
        much as the filter has, up to 200 MB.  A filter of more than 128 MB is loaded probe by probe.

        After a fault it may simply be called again with all items.  The filter's `count` then misses at
        most the new items of the batch that was interrupted.

        :param items: any iterable, an array of numpy, or a column of pandas or Arrow.
        :param progress: called with the number of items done so far.
        """
        # Of what is told here the drivers do the reading, and the counting that comes after this.
        for each in load.waiting:
            yield from self.add_encoded(each.encoded, each.items)
        handle = None
        while load.is_dense and (handle is None or handle is not self._stored.handle):
            # A filter that was lost may be made anew meanwhile.
            handle = self._stored.handle or (yield from self._stored.open())
            if handle.layout != load.layout:
                raise FilterLostError(f"{self.name!r} was replaced by a filter with other bits; load again")
            with doubtful(self.name), suppress(LayoutChanged):
                for segment in load.segments():
                    found = yield from self._stored.run(
                        _UNITE, handle, (segment.first, segment.data), self._temporaries
                    )
                    load.before(segment, found)
        return handle

    def tally(self, handle: Handle | None, added: int) -> Op[None]:
        """Count items that were new among those that `load` sent as segments."""
        if handle is not None and added:
            yield from self._calls.tally(handle, added)

    # -- the local cache

    def known(self, item: Item) -> bool:
        """Return whether the local cache says that an item is in the filter: then there is nothing to ask."""
        # An item whose call was not answered is owed the answer of that call.
        return (
            self._cache is not None
            and not self._receipts.in_doubt
            and self._cache.has(self._stored.handle, self.encode(item))
        )

    def _unknown(
        self, cache: LocalCache, encoded: Sequence[str | bytes]
    ) -> Op[tuple[HashedBatch, list[int]]]:
        """Return the items to ask the server about, hashed, and their places."""
        handle = self._stored.handle or (yield from self._stored.open())
        hashed = batch.hashed(handle.bitmap, encoded)
        ask = None if self._receipts.in_doubt else cache.unknown(handle, hashed)
        if ask is None:
            return hashed, list(range(len(encoded)))
        return hashed.take(ask), ask.tolist()

    def _learn(
        self, cache: LocalCache, sent: float, there: bytes | HashedBatch | None, misses: int
    ) -> Op[None]:
        handle = self._stored.handle
        if handle is None or (piece := cache.learn(handle, sent, there, misses)) is None:
            return
        asked = time.monotonic()
        try:
            read = yield from self._stored.run(_READ, handle, piece, reads=True)
        except Exception as error:
            _log.debug("the local cache of %r was not refreshed: %s", self.name, error)
        else:
            cache.unite(handle, piece[0], read, asked)

    # -- claims: check and set in two steps, for workers that may crash in between

    def claim(self, item: Item, lease: float | timedelta, make: Callable[[Held], C]) -> Op[C]:
        """Hold an item while working on it, unless it is done or another worker holds it.

        Test it first, as a claim that is not held does nothing::

            with seen.claim(url) as claim:
                if claim:
                    fetch(url)

        Of concurrent claims on an item one is told `"claimed"`; it is in the filter from its commit on.
        A worker that crashes loses the item when the lease runs out, and then another may claim it.
        One round trip, and one more for the commit.

        :param lease: seconds (or a timedelta) for which it is held; `Claim.extend` makes it longer.
        :raises OutcomeUnknownError: no answer came; a second call answers as this one would have.
        """
        duration = arguments.milliseconds("lease", lease)
        return (yield from self._claims.claim(self.encode(item), item, duration, make))

    def claim_many(
        self, items: Iterable[Item], lease: float | timedelta, make: Callable[[Held], C]
    ) -> Op[list[C]]:
        """Claim items; return a `Claim` of each, in order.  The second of two equal items is busy.

        :raises BatchInterruptedError: it stopped on its way; the error has the claims so far.
        """
        duration = arguments.milliseconds("lease", lease)
        batch = listed(items)
        encoded = self.encode_all(batch)
        return (yield from self._claims.claim_many(encoded, batch, duration, make)) if batch else []

    def commit(self, held: Held) -> Op[None]:
        """Put the item into the filter and drop the claim, in one step.  Nothing to do if it is done.

        :raises ClaimLostError: the claim is not held any more; nothing was changed.
        :raises OutcomeUnknownError: no answer came; a second call answers as this one would have.
        """
        return self._claims.commit(held)

    def release(self, held: Held) -> Op[None]:
        """Give the item back at once.  Nothing happens if it is not held any more."""
        return self._claims.release(held)

    def extend(self, held: Held, lease: float | timedelta) -> Op[None]:
        """Hold the item for `lease` seconds (or a timedelta) from now.

        :raises ClaimLostError: the claim is not held any more.
        """
        return self._claims.extend(held, arguments.milliseconds("lease", lease))

    def claim_again(self, held: Held) -> None:
        """Let the next claim of an item find a claim of ours that the caller was not told of."""
        self._claims.claim_again(held)

    def handle(self, item: Item | None = None) -> Op[Handle]:  # noqa: ARG002 - other filters have several
        """Return what is known of what an item is put into, opening it if it is not yet."""
        return self._stored.handle or (yield from self._stored.open())

    def queue_add(self, handle: Handle, pipe: AnyPipeline, item: Item) -> None:
        """Queue an add on a pipeline of the caller's; that place in `pipe.execute()` holds 1 or 0."""
        packed = handle.layout.pack_one(self.encode(item))
        keys, values = [handle.key], [handle.identity, packed]
        if self._retry_safe:
            lane = self._pipelines.lane(pipe)
            keys.append(lane.key)
            values.append(b"%d" % lane.next_call())
        keys += handle.extra
        script = self._stored.script(ADD)
        self._pipelines.queue(pipe, script, lambda verb, code: (verb, code, len(keys), *keys, *values))

    def queue_contains(self, handle: Handle, pipe: AnyPipeline, item: Item) -> None:
        """Queue a test on a pipeline of the caller's; that place in `pipe.execute()` holds 1 or 0."""
        packed = handle.layout.pack_one(self.encode(item))
        keys = (handle.key, *handle.extra)
        tail: steps.Command = (len(keys), *keys, handle.identity, packed)
        self._pipelines.queue(pipe, self._stored.script(CONTAINS), lambda verb, script: (verb, script, *tail))

    def token_of(self, encoded: str | bytes) -> str | None:
        """Return the token of an item about which there is a doubt."""
        place = self._receipts.place(encoded)
        return str(place) if place else None

    # -- the filter as a whole

    def reserve(self) -> Op[None]:
        """Create the filter now, or check the stored one.

        After a `FilterLostError` this takes notice of the loss: the filter that is there now, or a
        new one, is used from here on.

        :raises FilterMismatchError: the key holds something else; it is left untouched.
        :raises FilterNotFoundError: it does not exist, and there are no parameters to create it.
        """
        self._stored.reset()
        yield from self._stored.open()

    def info(self) -> Op[FilterInfo]:
        """Return the filter's parameters and how full it is.

        Costs a BITCOUNT over the whole filter, cut in pieces of under 2 ms.
        """
        return info.combined((yield from self._layers()))

    def _layers(self) -> Op[list[FilterInfo]]:
        layers = []
        for found in (yield from self._stored.current()):
            ones = yield from self._ones(found)
            layers.append(info.describe(self.name, found, ones))
        return layers

    def approximate_count(self) -> Op[int]:
        """Estimate the number of items from the share of bits set; costs what `info` does."""
        return (yield from self.info()).approximate_count

    def snapshot(self) -> Op[LocalFilter]:
        """Return a copy of the filter in this process, which is asked without the server.

        It takes as much memory as the filter.  Reading costs the server some 1 ms a megabyte, in pieces of
        0.1 ms; what others add meanwhile may be in it.
        """
        if not self.is_one_bitmap:
            raise TypeError(f"{self.name!r} is in several bitmaps, which are not copied")
        while True:
            (found,) = yield from self._stored.current()
            handle = self._stored.handle or (yield from self._stored.open())
            bits = Bits(handle.bitmap)
            with suppress(LayoutChanged):
                for first in range(0, len(bits.bytes), PIECE_BYTES):
                    piece = yield from self._stored.run(_READ, handle, (first, PIECE_BYTES), reads=True)
                    bits.unite(first, piece)
            if self._stored.handle is handle:
                return LocalFilter(self.name, found, bits, self)

    def clear(self) -> Op[None]:
        """Empty the filter: a new generation with the same parameters and the same expiry.

        Other clients notice at their next call (`FilterLostError`).  A missing filter is created.
        """
        with doubtful(self.name):
            yield from self._stored.clear()
        self._receipts.settled()

    def delete(self) -> Op[bool]:
        """Delete the filter; True if it existed.  This object's next call may create it again.

        :raises FilterMismatchError: the key holds something else; it is left untouched.
        """
        lane = self._receipts.take() if self._retry_safe else None
        number, keys = ([lane.next_call()], [lane.key]) if lane else ([], [])
        with doubtful(self.name):
            existed = yield from self._stored.delete(number, keys)
        if lane:
            self._receipts.give_back(lane)
        self._receipts.settled()
        return existed

    def expire(self, seconds: float | timedelta) -> Op[None]:
        """Let everything that the filter stores expire that many seconds (or a timedelta) from now."""
        ttl = arguments.milliseconds("seconds", seconds)
        with doubtful(self.name):
            yield from self._stored.expire(ttl)

    def _ones(self, found: Description) -> Op[int]:
        ones = 0
        for start in range(found.first_byte, found.size_bytes, _BITCOUNT_BYTES):
            ones += yield ("BITCOUNT", found.key, start, start + _BITCOUNT_BYTES - 1)
        return ones


def _merged(answers: list[bool], places: Sequence[int], told: Sequence[bool]) -> list[bool]:
    """Put what the server told into the places it was asked about."""
    for place, answer in zip(places, told, strict=False):
        answers[place] = answer
    return answers
