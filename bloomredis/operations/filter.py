"""The verbs that every filter has, over one stored filter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Final, TypeVar

from bloomredis import arguments
from bloomredis.arguments import listed
from bloomredis.bits import encoding
from bloomredis.operations import info
from bloomredis.operations.claims import Claims, Held
from bloomredis.operations.info import FilterInfo
from bloomredis.operations.loading import load
from bloomredis.operations.local_cache import CachedMembership
from bloomredis.operations.membership import Encoded, Membership
from bloomredis.operations.options import Options
from bloomredis.operations.outcomes import Answers
from bloomredis.protocol.calls import send
from bloomredis.protocol.ledger import Ledger
from bloomredis.protocol.receipts import Lanes, give_back, parse_token
from bloomredis.protocol.replies import outcome_matters
from bloomredis.protocol.steps import Op
from bloomredis.stored.base import Description, Stored
from bloomredis.stored.foreign import ForeignLayout
from bloomredis.stored.header import COUNTING, FILTER

C = TypeVar("C")

_BITCOUNT_BYTES: Final = 4 << 20  # counted at a time, under 2 ms


class Codec:
    """Items as bytes: by `encode=`, by another system's layout, or by the library's own way."""

    def __init__(self, encode: Callable[[Any], bytes] | None, foreign: ForeignLayout | None) -> None:
        self._custom = encode
        self._encoder: encoding.Encoder = foreign or encoding
        self._foreign = foreign
        self.is_plain = encode is None and foreign is None
        self.encode_all: Callable[[Sequence[Any]], Encoded] = (
            self._encoder.encode_all if encode is None else self._encode_each
        )
        """Encode the items of a batch; ASCII strings may stay as they are."""

    def __getstate__(self) -> tuple[Any, ...]:
        return self._custom, self._foreign

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        Codec.__init__(self, *state)

    def encode(self, item: Any) -> bytes:
        """Return an item's bytes; raises TypeError or ValueError if it has none."""
        if self._custom is None:
            return self._encoder.encode(item)
        encoded = self._custom(item)
        if not isinstance(encoded, bytes):
            raise TypeError(f"encode must return bytes, not {type(encoded).__name__} for {item!r}")
        return self._foreign.encode(encoded) if self._foreign else encoded

    def _encode_each(self, items: Sequence[Any]) -> Encoded:
        return [self.encode(item) for item in items]

    def encode_for_batch(self, item: Any) -> str | bytes:
        """Encode one item; bytes and ASCII str pass through."""
        if self.is_plain and (type(item) is bytes or (type(item) is str and item.isascii())):
            return item
        return self.encode(item)


class FilterOperations:
    """The verbs of one filter object, as operations."""

    kind: ClassVar[int] = FILTER
    """Kind of the header."""

    def __init__(
        self,
        stored: Stored,
        options: Options,
        *,
        foreign: ForeignLayout | None = None,
        cache_check: float | None = None,
    ) -> None:
        """Put the verbs together over what is stored under a key.

        :param cache_check: seconds for which the local cache answers without the server, None for no cache.
        """
        self.stored = stored
        self.options = options
        self.layout = foreign
        self.codec = Codec(options.encode, foreign)
        self.lanes = Lanes(stored.key)
        self.ledger = Ledger(every_call_counts=self.kind == COUNTING)
        self.membership = Membership(
            stored, self.lanes, self.ledger, retry_safe=options.retry_safe, replicas=cache_check is None
        )
        self._cache: CachedMembership | None = None
        if cache_check is not None:
            self._cache = CachedMembership(stored, self.ledger, self.membership, cache_check)
        self.has_cache = self._cache is not None
        self._answering: Membership | CachedMembership = self._cache or self.membership
        self._claims = Claims(stored, self.lanes, retry_safe=options.retry_safe)
        self.servers = 1

    @property
    def name(self) -> str:
        """The filter's key."""
        return self.stored.name

    # -- items

    def add(self, item: Any, *, token: str | None = None) -> Op[bool]:
        """Add an item; True if this call was the first to add it."""
        encoded = self.codec.encode(item)
        return self._answering.add_one(encoded, None if token is None else parse_token(token, encoded))

    def contains(self, item: Any) -> Op[bool]:
        """Return whether an item is in the filter."""
        return self._answering.test_one(self.codec.encode(item))

    def add_many(self, items: Iterable[Any]) -> Op[list[bool]]:
        """Add items; say of each, in order, whether it was new."""
        batch = listed(items)
        encoded = self.codec.encode_all(batch)
        return list((yield from self.add_encoded(encoded, batch))) if batch else []

    def contains_many(self, items: Iterable[Any]) -> Op[list[bool]]:
        """Return for each item, in order, whether it is in the filter."""
        encoded = self.codec.encode_all(listed(items))
        return (yield from self.contains_encoded(encoded)) if encoded else []

    def add_encoded(self, encoded: Encoded, items: Sequence[Any]) -> Op[Answers]:
        """Add `items`, which have been encoded."""
        return self._answering.add(encoded, items)

    def contains_encoded(self, encoded: Encoded) -> Op[list[bool]]:
        """Test items that have been encoded."""
        return self._answering.test(encoded)

    def keep(self, encoded: Encoded, answers: Sequence[bool]) -> None:
        """Keep the answers to an add that came when nobody was there to receive them."""
        if self.stored.handle is not None:
            for item, answer in zip(encoded, answers, strict=False):
                self.ledger.keep(item, self.stored.handle.generation, answer=answer)

    def in_local_cache(self, item: Any) -> bool:
        """True if the local cache says that an item is in the filter: then there is nothing to ask."""
        return self._cache is not None and self._cache.has(self.codec.encode(item))

    def load(self, source: Any, progress: Callable[[int], object] | None = None) -> Op[int]:
        """Add items as fast as possible, without an answer for each; return how many were read.

        :param source: an iterator of batches of `loading.LOAD_ITEMS`.
        """
        return (yield from load(self.stored, self.membership, self.codec, source, progress))

    # -- claims: check and set in two steps, for workers that may crash in between

    def claim(self, item: Any, lease: float | timedelta, make: Callable[[Held], C]) -> Op[C]:
        """Hold an item while working on it, unless it is done or another worker holds it."""
        duration = arguments.milliseconds("lease", lease)
        return self._claims.claim(self.codec.encode(item), item, duration, make)

    def claim_many(
        self, items: Iterable[Any], lease: float | timedelta, make: Callable[[Held], C]
    ) -> Op[list[C]]:
        """Claim items; return a `Claim` of each, in order."""
        duration = arguments.milliseconds("lease", lease)
        batch = listed(items)
        encoded = self.codec.encode_all(batch)
        return (yield from self._claims.claim_many(encoded, batch, duration, make)) if batch else []

    def commit(self, held: Held) -> Op[None]:
        """Put the item into the filter and drop the claim, in one step."""
        return self._claims.commit(held)

    def release(self, held: Held) -> Op[None]:
        """Give the item back at once."""
        return self._claims.release(held)

    def extend(self, held: Held, lease: float | timedelta) -> Op[None]:
        """Hold the item for `lease` seconds (or a timedelta) from now."""
        return self._claims.extend(held, arguments.milliseconds("lease", lease))

    def claim_again(self, held: Held) -> None:
        """Let the next claim of an item find a claim of ours that did not reach the caller."""
        self._claims.claim_again(held)

    # -- the filter as a whole

    def reserve(self) -> Op[None]:
        """Create the filter now, or check the stored one."""
        self.stored.reset()
        yield from self.stored.open()

    def info(self) -> Op[FilterInfo]:
        """Return the filter's parameters and how full it is."""
        return info.combined((yield from self._layers()))

    def _layers(self) -> Op[list[FilterInfo]]:
        layers = []
        for found in (yield from self.stored.current()):
            ones = yield from self._ones(found)
            layers.append(info.describe(self.name, found, ones))
        return layers

    def _ones(self, found: Description) -> Op[int]:
        ones = 0
        for start in range(found.first_byte, found.size_bytes, _BITCOUNT_BYTES):
            ones += yield from send(("BITCOUNT", found.key, start, start + _BITCOUNT_BYTES - 1))
        return ones

    def approximate_count(self) -> Op[int]:
        """Estimate the number of items from the share of bits set."""
        return (yield from self.info()).approximate_count

    def clear(self) -> Op[None]:
        """Empty the filter: a new generation with the same parameters and the same expiry."""
        with outcome_matters(self.name):
            yield from self.stored.clear()
        self.ledger.clear()

    def delete(self) -> Op[bool]:
        """Delete the filter; True if it existed."""
        lane = self.lanes.take() if self.options.retry_safe else None
        number, keys = ([lane.next_call(0)], [lane.key]) if lane else ([], [])
        with outcome_matters(self.name):
            existed = yield from self.stored.delete(number, keys)
        if lane:
            give_back(lane)
        self.ledger.clear()
        return existed

    def expire(self, seconds: float | timedelta) -> Op[None]:
        """Let everything that the filter stores expire that many seconds (or a timedelta) from now."""
        ttl = arguments.milliseconds("seconds", seconds)
        with outcome_matters(self.name):
            yield from self.stored.expire(ttl)
