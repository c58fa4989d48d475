"""The verbs that every filter has, over one stored filter."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, TypeVar

from bloomredis.bits.batch import Encoded
from bloomredis.operations.claims.calls import Claims
from bloomredis.operations.claims.state import Held, Terms
from bloomredis.operations.codec import Codec
from bloomredis.operations.items.capacity import Fullness
from bloomredis.operations.items.local_cache import CachedMembership
from bloomredis.operations.items.membership import Membership
from bloomredis.operations.items.outcomes import Answers
from bloomredis.operations.kinds.verbs import Keep, StoredVerbs
from bloomredis.operations.options import Options
from bloomredis.operations.whole import info
from bloomredis.operations.whole.info import FilterInfo
from bloomredis.operations.whole.loading import load, load_items
from bloomredis.protocol import forms
from bloomredis.protocol.calls import send
from bloomredis.protocol.pending import PendingCalls
from bloomredis.protocol.receipts import Lanes, parse_token
from bloomredis.protocol.steps import Batches, Op
from bloomredis.stored.foreign.bitmap import ForeignLayout
from bloomredis.stored.header import COUNTING, FILTER
from bloomredis.stored.module.filter import StoredModule
from bloomredis.stored.one_key.single import StoredFilter
from bloomredis.stored.state.base import Stored
from bloomredis.stored.state.handle import Description

C = TypeVar("C")
T = TypeVar("T")

_BITCOUNT_BYTES: Final = 4 << 20  # counted at a time, under 2 ms


class FilterOperations(StoredVerbs):
    """The verbs of one filter object, as operations."""

    kind: ClassVar[int] = FILTER
    """Kind of the header."""
    fullness: Fullness | None = None
    """What watches over the capacity, if anything does."""

    def __init__(
        self,
        stored: Stored,
        options: Options,
        *,
        foreign: ForeignLayout | None = None,
        cache_check: float | None = None,
    ) -> None:
        """Make the verbs of a filter.

        :param cache_check: seconds for which the local cache answers without the server, None for no cache.
        """
        self.name = stored.name
        self.stored = stored
        self.options = options
        self.layout = foreign
        self.codec = Codec(options.encode, foreign)
        self.lanes = Lanes(stored.key)
        self.pending = PendingCalls(every_call_counts=self.kind == COUNTING)
        self.membership = Membership(
            stored, self.lanes, self.pending, retry_safe=options.retry_safe, replicas=cache_check is None
        )
        self.cache: CachedMembership | None = None
        if cache_check is not None:
            self.cache = CachedMembership(stored, self.pending, self.membership, cache_check)
        self._answering: Membership | CachedMembership = self.cache or self.membership
        self._claims = Claims(stored, self.lanes, self.pending, retry_safe=options.retry_safe)
        self.batched: set[str] = set()
        self.servers = 1

    def read_at_once(self, reads: bool) -> None:  # noqa: FBT001 - the one thing that it sets
        """Let tests of one item read its blocks: several commands cost hardly more than one."""
        self.membership.reads = reads

    # -- items

    def add(self, item: object, *, token: str | None = None) -> Op[bool]:
        """Add an item; True if this call was the first to add it."""
        return self.add_one(self.codec.encode(item), token)

    def add_one(self, encoded: bytes, token: str | None) -> Op[bool]:
        """Add an item, which has been encoded."""
        return self._answering.add_one(encoded, None if token is None else parse_token(token, encoded))

    def contains(self, item: object) -> Op[bool]:
        """Return whether an item is in the filter."""
        return self.test_one(self.codec.encode(item))

    def test_one(self, encoded: bytes) -> Op[bool]:
        """Test an item, which has been encoded."""
        return self._answering.test_one(encoded)

    def add_encoded(self, encoded: Encoded, items: Sequence[object]) -> Op[Answers]:
        """Add `items`, which have been encoded."""
        return self._answering.add(encoded, items)

    def contains_encoded(self, encoded: Encoded) -> Op[list[bool]]:
        """Test items that have been encoded."""
        return self._answering.test(encoded)

    def keeper(self) -> Keep:
        """Return what keeps answers of the filter as it is now, in this process."""
        handle, process = self.stored.handle, os.getpid()

        def keep(encoded: Encoded, answers: Sequence[bool]) -> None:
            if handle is not None and process == os.getpid():
                for item, answer in zip(encoded, answers, strict=False):
                    self.pending.store_answer(item, handle.generation, answer=answer)

        return keep

    def has_pending(self) -> bool:
        """True if a call has no answer yet."""
        return not self.pending.is_empty

    def in_local_cache(self, item: object) -> bool:
        """True if the local cache proves that an item is in the filter."""
        return self.cache is not None and self.cache.has(self.codec.encode(item))

    def load(self, source: Batches, progress: Callable[[int], object] | None = None) -> Op[int]:
        """Add items as fast as possible, without an answer for each; return how many were read.

        :param source: an iterator of batches of `loading.LOAD_ITEMS`.
        """
        if self.fullness is not None and self.fullness.refuses:
            yield from self.fullness.admit()
        before, stored = self.membership.loaded, self.stored
        if isinstance(stored, StoredModule):
            return (yield from load_items(stored, self.codec, source, progress))
        done = yield from load(stored, self.membership, self.codec, source, progress)
        stored.left -= self.membership.loaded - before
        if self.fullness is not None and stored.left <= 0:
            self.fullness.passed()
        return done

    # -- claims: check and set in two steps, for workers that may crash in between

    def claim_one(self, encoded: bytes, item: object, terms: Terms, make: Callable[[Held], C]) -> Op[C]:
        """Claim an item, which has been encoded."""
        return self._claims.claim(encoded, item, terms, make)

    def claim_encoded(
        self, encoded: Encoded, items: Sequence[object], terms: Terms, make: Callable[[Held], C]
    ) -> Op[list[C]]:
        """Claim `items`, which have been encoded."""
        return self._claims.claim_many(encoded, items, terms, make)

    def commit_now(self, held: Held) -> Op[None]:
        """Put the item into the filter and drop the claim, in one step."""
        return self._claims.commit(held)

    def release_now(self, held: Held) -> Op[None]:
        """Give the item back."""
        return self._claims.release(held)

    def extend_now(self, held: Held, lease: int) -> Op[None]:
        """Hold the item for `lease` ms from now."""
        return self._claims.extend(held, lease)

    def renew_lease(self, held: Held) -> Op[None]:
        """Hold the item for its lease from now, unless its commit or release has begun meanwhile."""
        return self._claims.renew_lease(held)

    def claim_again(self, held: Held) -> None:
        """Let the next claim of an item return this one, which did not reach the caller."""
        self._claims.claim_again(held)

    # -- the filter as a whole

    def known(self) -> dict[str, object]:
        """Return the parameters that are known without I/O."""
        if isinstance(self.stored, StoredModule):
            return self.stored.parameters
        head = self.stored.head if isinstance(self.stored, StoredFilter) else None
        return info.known(head, self.layout)

    def reserve(self) -> Op[None]:
        """Create the filter now, or check the stored one."""
        yield from self.stored.take()

    def info(self) -> Op[FilterInfo]:
        """Return the filter's parameters and how full it is."""
        return info.combined((yield from self._layers()), grows=isinstance(self.stored, StoredModule))

    def on_part(self, number: int, call: Callable[[FilterOperations], Op[T]]) -> Op[T]:  # noqa: ARG002 - there is one
        """Run an operation of the only part."""
        return call(self)

    def _layers(self) -> Op[list[FilterInfo]]:
        layers = []
        for found in (yield from self.stored.current()):
            ones = yield from self.ones(found)
            layers.append(info.describe(self.name, found, ones))
        return layers

    def ones(self, found: Description) -> Op[int]:
        """Return the number of bits that are set."""
        if not found.has_bits:
            return info.expected_ones(found.header)
        ones = 0
        for start in range(found.first_byte, found.size_bytes, _BITCOUNT_BYTES):
            ones += yield from send(
                ("BITCOUNT", found.key, start, start + _BITCOUNT_BYTES - 1), forms.integer
            )
        return ones

    def _discard_pending(self, generation: bytes | None = None) -> None:
        self.pending.clear(generation)
