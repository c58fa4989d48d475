"""Operations that are the same for every filter."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Generator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from bloomredis import arguments
from bloomredis.bits.batch import Encoded
from bloomredis.operations.claims.verbs import ClaimOperations
from bloomredis.operations.options import Options
from bloomredis.protocol.pending import Answers
from bloomredis.protocol.receipts import Session, Sessions, in_session, parse_token
from bloomredis.protocol.replies import OutcomeMatters
from bloomredis.protocol.steps import Op
from bloomredis.stored.state.base import Stored
from bloomredis.stored.state.knowledge import Emptying

if TYPE_CHECKING:
    from bloomredis.operations.items.local_cache import CachedMembership
    from bloomredis.operations.items.membership import Membership
    from bloomredis.operations.whole.info import FilterInfo

T = TypeVar("T")
StoreAnswers = Callable[[Encoded, Sequence[bool]], None]
"""Stores the answers to an add of encoded items, for a retry."""


def _nothing() -> Op[list[bool]]:
    """Return the answers to an empty batch."""
    return []
    yield  # makes this a generator


class ItemOperations(ClaimOperations):
    """The operations of every filter; subclasses implement the abstract ones."""

    options: Options
    stored: Stored
    sessions: Sessions

    cache: CachedMembership | None
    items: Membership | CachedMembership
    """The calls that add and test encoded items; those of a sharded filter are like them."""

    def add(self, item: object, *, token: str | None = None) -> Op[bool]:
        """Add an item; True if this call was the first to add it."""
        encoded = self.codec.encode(item)
        return self.items.add_one(encoded, None if token is None else parse_token(token, encoded))

    def contains(self, item: object, *, by_reading: bool = False) -> Op[bool]:
        """Return whether an item is in the filter.

        :param by_reading: read the item's blocks without a script, if there are blocks.
        """
        return self.items.test_one(self.codec.encode(item), by_reading=by_reading)

    def add_many(self, items: Sequence[object]) -> Op[Answers] | Op[list[bool]]:
        """Add items; return for each, in order, whether it was new."""
        encoded = self.codec.encode_all(items)
        return self.items.add(encoded, items) if items else _nothing()

    def contains_many(self, items: Sequence[object]) -> Op[list[bool]]:
        """Return for each item, in order, whether it is in the filter."""
        encoded = self.codec.encode_all(items)
        return self.items.test(encoded) if encoded else _nothing()

    def add_shared(self, encoded: Encoded) -> Op[Answers]:
        """Add the encoded items of several callers, each of whom gets an answer or an error of its own."""
        return self.items.add(encoded, encoded)

    def contains_shared(self, encoded: Encoded) -> Op[list[bool]]:
        """Test the encoded items of several callers, each of whom gets an answer or an error of its own."""
        return self.items.test(encoded)

    @abstractmethod
    def local_parameters(self) -> dict[str, object]:
        """Return the parameters that are known without I/O."""

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

    def clear(self) -> Op[None]:
        """Empty the filter; its parameters and its expiry stay as they are."""
        yield from self._emptying(self.stored.clear())
        self.discard_pending()

    def delete(self) -> Op[bool]:
        """Delete the filter; True if it existed."""

        def delete(session: Session) -> Op[bool]:
            return self.stored.delete([session.next_call(0)], [session.key])

        retry_safe = self.options.retry_safe
        existed = yield from self._emptying(
            in_session(self.sessions, delete) if retry_safe else self.stored.delete([], [])
        )
        self.stored.known.emptied()
        self.discard_pending()
        return existed

    def _emptying(self, work: Op[T]) -> Op[T]:
        """Run a clear() or delete(), during which this object takes a new generation for no loss."""
        begun = Emptying()
        try:
            self.stored.known.emptying(begun)
            with OutcomeMatters(self.name):
                return (yield from work)
        finally:
            if self.cache is not None:
                self.cache.copy = (
                    None  # of the filter before; it might answer for a second after an interruption
                )
            begun.ended = True

    def create(self) -> Op[None]:
        """Create the filter now, or check the stored one, with each of its parts."""
        yield from self.stored.create()

    def acknowledge(self) -> Op[bool]:
        """Accept a loss, for all objects, which go on with what is stored; True if this one knew another."""
        with OutcomeMatters(self.name):
            return (yield from self.stored.acknowledge())

    def expire(self, ttl: float | timedelta) -> Op[None]:
        """Let all keys of the filter expire that many seconds (or a timedelta) from now."""
        milliseconds = arguments.milliseconds("ttl", ttl)
        with OutcomeMatters(self.name):
            yield from self.stored.expire(milliseconds)

    @abstractmethod
    def discard_pending(self) -> None:
        """Discard the pending items of earlier generations, since the filter was cleared or deleted."""
