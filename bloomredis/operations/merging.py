"""The answers of a batch that several parts gave, put together again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from bloomredis.errors import BatchInterruptedError
from bloomredis.operations.outcomes import Answers, interrupted_by

T = TypeVar("T")


class Answered:
    """The answers of a batch's parts, as they come."""

    def __init__(self) -> None:
        self._parts: list[tuple[list[int], Answers]] = []
        self._places: dict[int, tuple[Answers, int]] = {}  # by index in the batch

    def record(self, own: list[int], answers: Answers | None) -> None:
        """Record a part's answers to the first of its items, which have these indexes in the batch."""
        if answers is not None:
            self._parts.append((own, answers))

    def keep(self, indexes: Iterable[int]) -> None:
        """Keep the answers of these items of the batch, where there is one."""
        while self._parts:
            own, answers = self._parts.pop()
            self._places.update((own[j], (answers, j)) for j in range(len(answers)))
        for i in indexes:
            if i in self._places:
                answers, j = self._places[i]
                answers.keep([j])


def put_together(
    count: int, outcomes: Iterable[tuple[list[int], list[T] | Exception]]
) -> tuple[list[T | None], Exception | None]:
    """Return a batch's answers, None for items without one, and the error of the first of these."""
    merged: list[T | None] = [None] * count
    errors: list[tuple[int, Exception]] = []
    for own, answers in outcomes:
        known: Sequence[T] = answers if isinstance(answers, list) else getattr(answers, "results", ())
        for i, answer in zip(own, known, strict=False):
            merged[i] = answer
        if isinstance(answers, Exception):
            errors.append((own[len(known)], answers))
    return merged, min(errors, key=lambda error: error[0])[1] if errors else None


def stopped_batch(
    call: str,
    answers: Sequence[Any],
    items: Sequence[Any],
    error: Exception,
    outcomes: Iterable[tuple[list[int], Any]],
) -> BatchInterruptedError:
    """Return the error for a batch that stopped; raise its reason if no item was touched."""
    if all(answer is None for answer in answers) and not isinstance(error, BatchInterruptedError):
        raise error
    known = answers.index(None)
    reason = error.__cause__ if isinstance(error, BatchInterruptedError) else error
    tokens: list[str | None] = [None] * (len(items) - known)
    for own, stopped in outcomes:
        if isinstance(stopped, BatchInterruptedError):
            for i, token in zip(own[len(stopped.results) :], stopped.tokens, strict=False):
                tokens[i - known] = token
    interrupted = interrupted_by(reason, call, answers[:known], items, tokens)
    interrupted.__cause__ = reason
    return interrupted
