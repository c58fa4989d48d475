"""Masks: a bool for each row of an array of numpy, or of a column of pandas, Arrow or polars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from bloomredis.arguments import check_items, listed, shown
from bloomredis.bits.arrays import NDArray, np
from bloomredis.bits.encoding import rows_from
from bloomredis.errors import BatchInterruptedError, BloomError
from bloomredis.operations.items.outcomes import TRANSIENT, interrupted_by

_ROWS: Final = 16_384
"""Rows of a batch."""


class Mask:
    """The answers for the rows of a column, which are sent in batches.

    Only the items of one batch at a time are Python objects.

    :ivar answers: a bool for each row.
    """

    def __init__(self, call: str, column: Any) -> None:
        if not hasattr(column, "__len__") or not hasattr(column, "__getitem__"):
            raise TypeError(f"{call} takes an array or a column, not {shown(column)}")
        check_items(column)
        self._call = call
        self._rows = getattr(column, "iloc", column)  # pandas: by position, not by label
        self._done = 0
        self.answers: NDArray[np.bool_] = np.empty(len(column), dtype=bool)

    def batches(self) -> Iterator[list[Any]]:
        """Yield the items of the rows in batches; `take` the answers of each before the next."""
        while self._done < len(self.answers):
            yield listed(self._rows[self._done : self._done + _ROWS])

    def take(self, answers: Sequence[bool]) -> None:
        """Store the answers of a batch."""
        self.answers[self._done : self._done + len(answers)] = answers
        self._done += len(answers)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Send a batch within this context: errors then name the row, and have the rows without an answer."""
        try:
            with rows_from(self._done):
                yield
        except (BatchInterruptedError, *TRANSIENT) as error:
            if not self._done and not isinstance(error, BatchInterruptedError):
                raise
            raise self._interrupted(error) from _cause(error)

    def _interrupted(self, error: BloomError) -> BatchInterruptedError:
        self.take(getattr(error, "results", ()))
        results, tokens = self.answers[: self._done].tolist(), getattr(error, "tokens", ())
        interrupted = interrupted_by(_cause(error), self._call, results, range(len(self.answers)), tokens)
        interrupted.rest = self._rows[self._done :]
        return interrupted


def _cause(error: BloomError) -> BaseException | None:
    return error.__cause__ if isinstance(error, BatchInterruptedError) else error
