"""The work of `dedupe`: add lines to the filter, and write those that were new.

Adding a line to a shared filter marks it for all runs.  So as long as few lines were written, few are added
at a time: if the reader goes away after n lines, at most about n marked lines are lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any

from bloomredis.cli import stderr
from bloomredis.cli.lines import Columns, Key
from bloomredis.cli.output import fail
from bloomredis.cli.pipe_writer import FEW, NotTakenError, PipeWriter
from bloomredis.errors import BatchInterruptedError, OutcomeUnknownError

Piece = tuple[Sequence[Key], Sequence[bytes]]
"""Distinct keys, and a line for each."""


class Deduping:
    """One run of `dedupe`.

    :param writer: takes the new lines; None to count them only.
    :param shared: the filter has a name, by which other runs use it.
    """

    def __init__(self, seen: Any, columns: Columns, writer: PipeWriter | None, *, shared: bool) -> None:
        self.totals = {"read": 0, "new": 0}
        self._seen = seen
        self._columns = columns
        self._writer = writer
        self._shared = shared

    def run(self, lines: Iterator[list[bytes]]) -> None:
        """Deduplicate batch by batch; write each before the next is read."""
        for batch in lines:
            keys, kept = self._columns.split(batch, self.totals["read"])
            new = sum(map(self._ask, self._pieces(keys, kept)))
            self.totals["read"] += len(batch)
            self.totals["new"] += new
            self._columns.check()
        if not self._columns.are_whole:
            self.totals["missing"] = self._columns.missed
        if warning := self._columns.end(self.totals["read"]):
            stderr.warn(warning)

    def _pieces(self, keys: Sequence[Key], lines: Sequence[bytes]) -> Iterator[Piece]:
        """Yield the pieces of a batch, each small enough to be marked at once."""
        writer = self._writer
        if writer is None or not self._shared or writer.lines >= len(keys) > 0:
            yield keys, lines
            return
        if writer.lines < FEW:
            unknown = self._unknown(keys)
            keys, lines = list(compress(keys, unknown)), list(compress(lines, unknown))
        start = 0
        while start < len(keys):
            stop = start + max(1, writer.lines)
            yield keys[start:stop], lines[start:stop]
            start = stop

    def _unknown(self, keys: Sequence[Key]) -> list[bool]:
        """Return for each key whether it may be new, without marking it."""
        known = iter(self._seen.contains_many(_asked(keys)))
        return [isinstance(key, int) or not next(known) for key in keys]

    def _ask(self, piece: Piece) -> int:
        """Mark lines, write those that were new, and return their number."""
        keys, lines = piece
        asked = _asked(keys)
        answers, error = self._add(asked)
        passed = answers if asked is keys else list(_merged(keys, answers))
        if self._writer is not None:
            try:
                self._writer.put(list(compress(lines, passed)))
            except NotTakenError as left:
                if self._shared:
                    self._not_taken(list(compress(keys, passed))[-left.count :] if left.count else [])
                if error is None:
                    fail(left.reason)
        if error is not None:
            raise error
        return sum(passed)

    def _add(self, items: Sequence[Key]) -> tuple[list[bool], BaseException | None]:
        """Return the answers, and the error that interrupted the batch, if any."""
        try:
            return self._seen.add_many(items) if items else [], None
        except BatchInterruptedError as error:
            cause = error.__cause__ or error
            if self._shared and isinstance(cause, OutcomeUnknownError):
                lost = f"up to {len(error.tokens):,} lines may be marked as seen and were not printed"
                cause.restate(f"{cause.problem}; {lost}")
            return error.results, cause

    def _not_taken(self, keys: Sequence[Key]) -> None:
        """Unmark the lines that were not taken; if the filter cannot remove items, print their number."""
        marked = _asked(keys)
        if not marked:
            return
        if hasattr(self._seen, "remove"):
            for key in marked:
                self._seen.remove(key)
            return
        lines = "1 line is" if len(marked) == 1 else f"{len(marked):,} lines are"
        stderr.warn(
            f"the reader did not take all output: {lines} marked as seen in {self._seen.name!r} and will "
            "not be printed again"
        )


def _asked(keys: Sequence[Key]) -> Sequence[Key]:
    """Return the keys that the filter is asked about: all but those of lines that pass anyway."""
    if int not in set(map(type, keys)):
        return keys
    return [key for key in keys if not isinstance(key, int)]


def _merged(keys: Sequence[Key], answers: Sequence[bool]) -> Iterator[bool]:
    """Yield whether each line passes, up to the first line without an answer."""
    answered = iter(answers)
    for key in keys:
        if isinstance(key, int):
            yield True
        elif (answer := next(answered, None)) is None:
            return
        else:
            yield answer
