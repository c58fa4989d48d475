"""Batches of items that are compared by keys; an item may have no key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from bloomredis.arguments import Missing
from bloomredis.bits.encoding import is_null, plain, rows_from
from bloomredis.errors import BatchInterruptedError
from bloomredis.operations.kinds.verbs import ItemOperations

T = TypeVar("T")


class KeyedBatch(Generic[T]):
    """A batch of items with their keys.

    :ivar items: the items, without the dropped ones.
    :ivar present: the keys to add.
    """

    def __init__(self, batch: list[T], key: Callable[[T], Any] | None, missing: Missing) -> None:
        self.items = batch
        self._keys = self.present = batch if key is None else list(map(key, batch))
        self._keyless: Collection[int] = ()  # the indexes of items that are kept without a key
        self._rows: Sequence[int] = range(len(batch))
        if missing == "raise" or not any(map(_is_missing, self._keys)):
            return
        self._rows = [row for row, each in enumerate(self._keys) if not _is_missing(each)]
        self.present = [self._keys[row] for row in self._rows]
        if missing == "drop":
            self.items, self._keys = [batch[row] for row in self._rows], self.present
        else:
            self._keyless = frozenset(range(len(batch))).difference(self._rows)

    @contextmanager
    def adding(self, rows: int) -> Iterator[None]:
        """Add the keys that are present within this context: errors then count the items, after `rows`."""
        try:
            with rows_from(rows, self._rows):
                yield
        except BatchInterruptedError as error:
            error.results = self.answers(error.results)
            raise

    def answers(self, answers: list[bool]) -> list[bool]:
        """Return an answer for each item, up to the first unanswered key; an item without a key is new."""
        if not self._keyless:
            return answers
        found, left = list[bool](), iter(answers)
        for at in range(len(self.items)):
            answer = True if at in self._keyless else next(left, None)
            if answer is None:
                break
            found.append(answer)
        return found

    def new_items(self, operations: ItemOperations, answers: Sequence[bool]) -> Generator[T, None, None]:
        """Yield the items whose keys were new; store the answers if the caller stops early."""
        return operations.new_items(self.items, self._keys, answers, self._keyless)


def _is_missing(key: Any) -> bool:
    return is_null(plain(key))
