"""Operations that are the same for every filter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Protocol, TypeVar

from bloomredis import arguments
from bloomredis.arguments import listed
from bloomredis.bits.batch import Encoded
from bloomredis.operations.claims.calls import Claims, each_of
from bloomredis.operations.claims.patience import until_lease_ends, with_connection
from bloomredis.operations.claims.state import ClaimOptions, ClaimState, ClaimStatus, parse_token, token_of
from bloomredis.operations.codec import Codec
from bloomredis.operations.items.outcomes import Answers
from bloomredis.operations.options import Options
from bloomredis.operations.whole.info import FilterInfo
from bloomredis.protocol.gather import gather
from bloomredis.protocol.receipts import Session, Sessions, in_session
from bloomredis.protocol.replies import OutcomeMatters
from bloomredis.protocol.steps import Op
from bloomredis.stored.state.base import Stored

T = TypeVar("T")
C = TypeVar("C")
StoreAnswers = Callable[[Encoded, Sequence[bool]], None]
"""Stores the answers to an add of encoded items, for a retry."""


def _nothing() -> Op[list[bool]]:
    """Return the answers to an empty batch."""
    return []
    yield  # makes this a generator


class Part(Protocol):
    """A filter in one part, or one part of a filter."""

    claims: Claims


class ItemOperations(ABC):
    """The operations of every filter; subclasses implement the abstract ones."""

    name: str
    codec: Codec
    options: Options
    batched: set[str]
    """Names of the claim operations of which this object has made a batch."""

    def add_many(self, items: Sequence[object]) -> Op[Answers] | Op[list[bool]]:
        """Add items; return for each, in order, whether it was new."""
        encoded = self.codec.encode_all(items)
        return self.add_encoded(encoded, items) if items else _nothing()

    def contains_many(self, items: Sequence[object]) -> Op[list[bool]]:
        """Return for each item, in order, whether it is in the filter."""
        encoded = self.codec.encode_all(items)
        return self.contains_encoded(encoded) if encoded else _nothing()

    def claim(
        self,
        item: object,
        lease: float | timedelta,
        make: Callable[[ClaimState], C],
        owner: str | None = None,
    ) -> Op[C]:
        """Claim an item, unless it is done or another worker holds it."""
        options = ClaimOptions.of(lease, owner)
        encoded = self.codec.encode(item)
        claiming = self.on_item(encoded, lambda part: part.claims.claim(encoded, item, options, make))
        return with_connection(claiming)

    def claim_many(
        self,
        items: Iterable[object],
        lease: float | timedelta,
        make: Callable[[ClaimState], C],
        owner: str | None = None,
    ) -> Op[list[C]]:
        """Claim items; return a `Claim` of each, in order."""
        options = ClaimOptions.of(lease, owner)
        batch = listed(items)
        encoded = self.codec.encode_all(batch)
        if not batch:
            return []
        return (yield from with_connection(self.claim_encoded(encoded, batch, options, make)))

    def commit(self, state: ClaimState) -> Op[None]:
        """Add the item to the filter and end the claim, in one step."""
        return with_connection(until_lease_ends(state, partial(self.on_claim, Claims.commit)))

    def commit_many(self, claims: Sequence[object], states: Sequence[ClaimState]) -> Op[list[ClaimStatus]]:
        """Commit claims in one round trip; return the state of each afterwards."""
        commit = partial(self.on_claim, Claims.commit)
        commits = each_of("commit_many", claims, states, commit, self.batched, patient=True)
        return with_connection(commits)

    def release(self, state: ClaimState) -> Op[None]:
        """Release the item."""
        return with_connection(self.on_claim(Claims.release, state))

    def release_many(self, claims: Sequence[object], states: Sequence[ClaimState]) -> Op[list[ClaimStatus]]:
        """Release claims in one round trip; return the state of each afterwards."""
        release = partial(self.on_claim, Claims.release)
        return with_connection(each_of("release_many", claims, states, release, self.batched))

    def extend(self, state: ClaimState, lease: float | timedelta) -> Op[None]:
        """Hold the item for `lease` seconds (or a timedelta) from now."""
        extend = partial(Claims.extend, lease=arguments.milliseconds("lease", lease))
        return with_connection(self.on_claim(extend, state))

    def extend_many(
        self, claims: Sequence[object], states: Sequence[ClaimState], lease: float | timedelta
    ) -> Op[list[ClaimStatus]]:
        """Extend claims in one round trip; return the state of each afterwards."""
        extend = partial(self.on_claim, partial(Claims.extend, lease=arguments.milliseconds("lease", lease)))
        return with_connection(each_of("extend_many", claims, states, extend, self.batched))

    def server_of(self, state: ClaimState) -> int:  # noqa: ARG002 - for its overrides
        """Return the number of the server of a claim, among the filter's servers."""
        return 0

    def renew_many(self, states: Sequence[ClaimState]) -> Op[list[Exception | None]]:
        """Renew the leases of claims in one round trip; return the error of each that failed."""
        return gather(self.on_claim(Claims.renew_lease, state) for state in states)

    def on_claim(self, verb: Callable[[Claims, ClaimState], Op[T]], state: ClaimState) -> Op[T]:
        """Run an operation on a claim."""
        return self.on_item(state.encoded, lambda part: verb(part.claims, state))

    def claim_again(self, state: ClaimState) -> None:
        """Let the next claim of the item return this claim, which did not reach the caller."""
        self.part_of(state.encoded).claims.claim_again(state)

    def token(self, state: ClaimState) -> str:
        """Return the token of a claim, from which another process makes the same claim."""
        return token_of(state, self.name)

    def from_token(self, token: str) -> ClaimState:
        """Return the claim of a token."""
        return parse_token(token, self.name)

    def approximate_count(self) -> Op[int]:
        """Estimate the number of items from the share of bits set."""
        return (yield from self.info()).approximate_count

    @abstractmethod
    def on_item(self, encoded: bytes, call: Callable[[Any], Op[T]]) -> Op[T]:
        """Run an operation on the part of the filter that has an item."""

    @abstractmethod
    def part_of(self, encoded: bytes) -> Part:
        """Return the part that has an item; the filter must be open."""

    @abstractmethod
    def add_encoded(self, encoded: Encoded, items: Sequence[object]) -> Op[Answers]:
        """Add encoded items; `items` are the caller's."""

    def add_shared(self, encoded: Encoded, items: Sequence[object]) -> Op[Answers]:
        """Add the encoded items of several callers, each of whom gets an answer or an error of its own."""
        return self.add_encoded(encoded, items)

    @abstractmethod
    def contains_encoded(self, encoded: Encoded) -> Op[list[bool]]:
        """Test encoded items."""

    @abstractmethod
    def claim_encoded(
        self,
        encoded: Encoded,
        items: Sequence[object],
        options: ClaimOptions,
        make: Callable[[ClaimState], C],
    ) -> Op[list[C]]:
        """Claim encoded items; `items` are the caller's."""

    @abstractmethod
    def local_parameters(self) -> dict[str, object]:
        """Return the parameters that are known without I/O."""

    @abstractmethod
    def reserve(self, *, marks: bool | None = None) -> Op[None]:
        """Create the filter now, or check the stored one.

        :param marks: let all objects that have raised a loss go on with it; by default if this one has.
        """

    @abstractmethod
    def info(self) -> Op[FilterInfo]:
        """Return the filter's parameters and how full it is."""

    @abstractmethod
    def answer_store(self) -> StoreAnswers:
        """Return a function that stores answers for retries, for the present generation and process."""

    def new_items(
        self,
        batch: Sequence[T],
        keys: Sequence[object],
        answers: Sequence[bool],
        keyless: Collection[int] = (),
    ) -> Generator[T, None, None]:
        """Yield the items of a batch whose keys were new; store the answers if the caller stops early.

        :param keyless: the indexes of items without a key, whose answers are not stored.
        """
        store = self.answer_store()  # made now, since the filter may be replaced before the caller stops
        for at, (item, new) in enumerate(zip(batch, answers, strict=False), 1):
            if new:
                try:
                    yield item
                except GeneratorExit:
                    left = [each for each in range(at, len(answers)) if each not in keyless]
                    store(self.codec.encode_all([keys[i] for i in left]), [answers[i] for i in left])
                    raise

    @abstractmethod
    def clear(self) -> Op[None]:
        """Empty the filter."""

    @abstractmethod
    def delete(self) -> Op[bool]:
        """Delete the filter; True if it existed."""


class StoredOperations(ItemOperations):
    """The operations that need the state under a filter's key."""

    stored: Stored
    sessions: Sessions

    def clear(self) -> Op[None]:
        """Empty the filter; its parameters and its expiry stay as they are."""
        with OutcomeMatters(self.name), self.stored.in_flight.emptying():
            yield from self.stored.clear()
        self.discard_pending()

    def delete(self) -> Op[bool]:
        """Delete the filter; True if it existed."""

        def delete(session: Session) -> Op[bool]:
            return self.stored.delete([session.next_call(0)], [session.key])

        retry_safe = self.options.retry_safe
        with OutcomeMatters(self.name), self.stored.in_flight.emptying():
            existed = (
                yield from in_session(self.sessions, delete) if retry_safe else self.stored.delete([], [])
            )
        self.discard_pending()
        self.stored.reset()
        return existed

    def renew_many(self, states: Sequence[ClaimState]) -> Op[list[Exception | None]]:
        """Renew the leases of claims in one round trip; return the error of each that failed."""
        renewals = (self.on_claim(Claims.renew_lease, state) for state in states)
        return gather(map(self.stored.untold, renewals))

    def reserve(self, *, marks: bool | None = None) -> Op[None]:
        """Create the filter now, or check the stored one, with each shard."""
        yield from self.stored.reopen(marks=marks)

    def expire(self, seconds: float | timedelta) -> Op[None]:
        """Let all keys of the filter expire that many seconds (or a timedelta) from now."""
        ttl = arguments.milliseconds("seconds", seconds)
        with OutcomeMatters(self.name):
            yield from self.stored.expire(ttl)

    @abstractmethod
    def discard_pending(self) -> None:
        """Discard the pending items of earlier generations, since the filter was cleared or deleted."""
