"""Verbs that are the same for every filter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import TypeVar

from bloomredis import arguments
from bloomredis.arguments import listed
from bloomredis.bits.batch import Encoded
from bloomredis.operations.claims.calls import each_of
from bloomredis.operations.claims.patience import (
    all_until_leases_end,
    together,
    until_lease_ends,
    with_connection,
)
from bloomredis.operations.claims.state import Held, State, Terms, parse_token, token_of
from bloomredis.operations.codec import Codec
from bloomredis.operations.items.outcomes import Answers
from bloomredis.operations.options import Options
from bloomredis.operations.whole.info import FilterInfo
from bloomredis.protocol.gather import gather
from bloomredis.protocol.receipts import Lane, Lanes, in_a_lane
from bloomredis.protocol.replies import OutcomeMatters
from bloomredis.protocol.steps import Op
from bloomredis.stored.state.base import Stored

T = TypeVar("T")
C = TypeVar("C")
Keep = Callable[[Encoded, Sequence[bool]], None]
"""Keeps the answers to an add of encoded items, for a caller who asks again."""


def _nothing() -> Op[list[bool]]:
    """Return the answers to no items."""
    return []
    yield  # a generator


class Verbs(ABC):
    """Verbs that follow from others, and these others."""

    name: str
    codec: Codec
    options: Options
    batched: set[str]
    """Verbs of which this object has made a batch of claims."""

    def add_many(self, items: Sequence[object]) -> Op[Answers] | Op[list[bool]]:
        """Add items; return for each, in order, whether it was new."""
        encoded = self.codec.encode_all(items)
        return self.add_encoded(encoded, items) if items else _nothing()

    def contains_many(self, items: Sequence[object]) -> Op[list[bool]]:
        """Return for each item, in order, whether it is in the filter."""
        encoded = self.codec.encode_all(items)
        return self.contains_encoded(encoded) if encoded else _nothing()

    def claim(
        self, item: object, lease: float | timedelta, make: Callable[[Held], C], owner: str | None = None
    ) -> Op[C]:
        """Hold an item while working on it, unless it is done or another worker holds it."""
        terms = Terms.of(lease, owner)
        return with_connection(self.claim_one(self.codec.encode(item), item, terms, make))

    def claim_many(
        self,
        items: Iterable[object],
        lease: float | timedelta,
        make: Callable[[Held], C],
        owner: str | None = None,
    ) -> Op[list[C]]:
        """Claim items; return a `Claim` of each, in order."""
        terms = Terms.of(lease, owner)
        batch = listed(items)
        encoded = self.codec.encode_all(batch)
        if not batch:
            return []
        return (yield from with_connection(self.claim_encoded(encoded, batch, terms, make)))

    def commit(self, held: Held) -> Op[None]:
        """Put the item into the filter and drop the claim, in one step."""
        return with_connection(until_lease_ends(held, self.commit_now))

    def commit_many(self, claims: Sequence[object], helds: Sequence[Held]) -> Op[list[State]]:
        """Commit claims in one round trip; return the state of each afterwards."""
        commit = partial(all_until_leases_end, commit=self.commit_now)
        return with_connection(each_of("commit_many", claims, helds, commit, self.batched))

    def release(self, held: Held) -> Op[None]:
        """Give the item back."""
        return with_connection(self.release_now(held))

    def release_many(self, claims: Sequence[object], helds: Sequence[Held]) -> Op[list[State]]:
        """Release claims in one round trip; return the state of each afterwards."""
        release = partial(together, call=self.release_now)
        return with_connection(each_of("release_many", claims, helds, release, self.batched))

    def extend(self, held: Held, lease: float | timedelta) -> Op[None]:
        """Hold the item for `lease` seconds (or a timedelta) from now."""
        return with_connection(self.extend_now(held, arguments.milliseconds("lease", lease)))

    def extend_many(
        self, claims: Sequence[object], helds: Sequence[Held], lease: float | timedelta
    ) -> Op[list[State]]:
        """Extend claims in one round trip; return the state of each afterwards."""
        duration = arguments.milliseconds("lease", lease)
        extend = partial(together, call=partial(self.extend_now, lease=duration))
        return with_connection(each_of("extend_many", claims, helds, extend, self.batched))

    def renew_many(self, helds: Sequence[Held]) -> Op[list[Exception | None]]:
        """Renew the leases of claims in one round trip; return the error of each that failed."""
        return gather(map(self.renew_lease, helds))

    def token(self, held: Held) -> str:
        """Return the token of a claim, from which another process makes the same claim."""
        return token_of(held, self.name)

    def from_token(self, token: str) -> Held:
        """Return the claim of a token."""
        return parse_token(token, self.name)

    def approximate_count(self) -> Op[int]:
        """Estimate the number of items from the share of bits set."""
        return (yield from self.info()).approximate_count

    @abstractmethod
    def add_encoded(self, encoded: Encoded, items: Sequence[object]) -> Op[Answers]:
        """Add `items`, which have been encoded."""

    @abstractmethod
    def contains_encoded(self, encoded: Encoded) -> Op[list[bool]]:
        """Test items that have been encoded."""

    @abstractmethod
    def claim_one(self, encoded: bytes, item: object, terms: Terms, make: Callable[[Held], C]) -> Op[C]:
        """Claim an item, which has been encoded."""

    @abstractmethod
    def claim_encoded(
        self, encoded: Encoded, items: Sequence[object], terms: Terms, make: Callable[[Held], C]
    ) -> Op[list[C]]:
        """Claim `items`, which have been encoded."""

    @abstractmethod
    def commit_now(self, held: Held) -> Op[None]:
        """Put the item into the filter and drop the claim, in one step; try once."""

    @abstractmethod
    def release_now(self, held: Held) -> Op[None]:
        """Give the item back."""

    @abstractmethod
    def extend_now(self, held: Held, lease: int) -> Op[None]:
        """Hold the item for `lease` ms from now."""

    @abstractmethod
    def renew_lease(self, held: Held) -> Op[None]:
        """Hold the item for its lease from now, unless its commit or release has begun meanwhile."""

    @abstractmethod
    def known(self) -> dict[str, object]:
        """Return the parameters that are known without I/O."""

    @abstractmethod
    def reserve(self) -> Op[None]:
        """Create the filter now, or check the stored one."""

    @abstractmethod
    def info(self) -> Op[FilterInfo]:
        """Return the filter's parameters and how full it is."""

    @abstractmethod
    def keeper(self) -> Keep:
        """Return what keeps answers of the filter as it is now that nobody is there to receive."""

    def new_items(
        self, batch: Sequence[T], keys: Sequence[object], answers: Sequence[bool]
    ) -> Generator[T, None, None]:
        """Yield the items of a batch whose keys were new; the answers that nobody asks for are kept."""
        keep = self.keeper()  # the filter may be another one by the time that a caller leaves
        for at, (item, new) in enumerate(zip(batch, answers, strict=False), 1):
            if new:
                try:
                    yield item
                except GeneratorExit:
                    keep(self.codec.encode_all(keys[at : len(answers)]), answers[at:])
                    raise

    @abstractmethod
    def clear(self) -> Op[None]:
        """Empty the filter."""

    @abstractmethod
    def delete(self) -> Op[bool]:
        """Delete the filter; True if it existed."""


class StoredVerbs(Verbs):
    """Verbs for all that is stored under a filter's key."""

    stored: Stored
    lanes: Lanes

    def clear(self) -> Op[None]:
        """Empty the filter: a new generation with the same parameters and the same expiry."""
        with OutcomeMatters(self.name), self.stored.under_way.emptying():
            yield from self.stored.clear()
        handle = self.stored.handle
        self._discard_pending(handle.generation or None if handle else None)  # bitmaps have none

    def delete(self) -> Op[bool]:
        """Delete the filter; True if it existed."""

        def delete(lane: Lane) -> Op[bool]:
            return self.stored.delete([lane.next_call(0)], [lane.key])

        retry_safe = self.options.retry_safe
        with OutcomeMatters(self.name), self.stored.under_way.emptying():
            existed = yield from in_a_lane(self.lanes, delete) if retry_safe else self.stored.delete([], [])
        handle = self.stored.handle  # another call may have opened it meanwhile, before or after
        self._discard_pending(handle.generation if handle else None)
        self.stored.reset()
        return existed

    def expire(self, seconds: float | timedelta) -> Op[None]:
        """Let everything that the filter stores expire that many seconds (or a timedelta) from now."""
        ttl = arguments.milliseconds("seconds", seconds)
        with OutcomeMatters(self.name):
            yield from self.stored.expire(ttl)

    @abstractmethod
    def _discard_pending(self, generation: bytes | None = None) -> None:
        """Discard pending items, as the filter was cleared or deleted: all but those of this generation."""
