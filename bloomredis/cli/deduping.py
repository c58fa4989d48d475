"""The work of `dedupe`: ask which lines are new, write these, and ask on.

In a shared filter a line is marked when it is asked about, so few are asked about at a time as long as few
were written: a reader that goes away after some lines leaves no more than about as many behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any

import typer

from bloomredis import BatchInterruptedError, BloomError, OutcomeUnknownError
from bloomredis.cli.crowding import Crowding
from bloomredis.cli.filters import Kind, kind_of
from bloomredis.cli.lines import Columns, Key
from bloomredis.cli.outlet import FEW, NotTakenError, Outlet
from bloomredis.cli.output import fail

Piece = tuple[Sequence[Key], Sequence[bytes]]
"""The keys of lines, each key once, and the lines."""


class Deduping:
    """One run.

    :param outlet: where new lines go, None to count them only.
    :param shared: others know the filter by its name.
    """

    def __init__(
        self, seen: Any, columns: Columns, outlet: Outlet | None, crowding: Crowding, *, shared: bool
    ) -> None:
        self.totals = {"read": 0, "new": 0}
        self._seen = seen
        self._columns = columns
        self._outlet = outlet
        self._crowding = crowding
        self._shared = shared

    def run(self, lines: Iterator[list[bytes]]) -> None:
        """Deduplicate batch by batch; write each before the next is read."""
        for batch in lines:
            keys, kept = self._columns.split(batch, self.totals["read"])
            new = sum(map(self._ask, self._pieces(keys, kept)))
            self.totals["read"] += len(batch)
            self.totals["new"] += new
            self._crowding.added(len(batch), new)
            self._columns.check()
        self._crowding.end()

    def _pieces(self, keys: Sequence[Key], lines: Sequence[bytes]) -> Iterator[Piece]:
        """Cut a batch into pieces that may be asked about at once."""
        outlet = self._outlet
        if outlet is None or not self._shared or outlet.lines >= len(keys) > 0:
            yield keys, lines
            return
        if outlet.lines < FEW:
            unknown = self._unknown(keys)
            keys, lines = list(compress(keys, unknown)), list(compress(lines, unknown))
        start = 0
        while start < len(keys):
            stop = start + max(1, outlet.lines)
            yield keys[start:stop], lines[start:stop]
            start = stop

    def _unknown(self, keys: Sequence[Key]) -> list[bool]:
        """Return which keys may be new, without marking them."""
        known = iter(self._seen.contains_many(_asked(keys)))
        return [isinstance(key, int) or not next(known) for key in keys]

    def _ask(self, piece: Piece) -> int:
        """Mark lines, and write those that were new; return how many."""
        keys, lines = piece
        asked = _asked(keys)
        answers, error = self._add(asked)
        passed = answers if asked is keys else list(_merged(keys, answers))
        if self._outlet is not None:
            try:
                self._outlet.put(list(compress(lines, passed)))
            except NotTakenError as left:
                if self._shared:
                    self._not_taken(list(compress(keys, passed))[-left.count :] if left.count else [])
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
                return error.results, BloomError(f"{cause}; {lost}")
            return error.results, cause

    def _not_taken(self, keys: Sequence[Key]) -> None:
        """Give back lines that are marked and were not taken; where that cannot be, count them."""
        marked = _asked(keys)
        if not marked:
            return
        if kind_of(self._seen) is Kind.COUNTING:
            for key in marked:
                self._seen.remove(key)
            return
        lines = "1 line is" if len(marked) == 1 else f"{len(marked):,} lines are"
        typer.echo(
            f"bloomredis: warning: the output was not taken to its end: {lines} marked as seen in "
            f"{self._seen.name!r} and will not be printed again",
            err=True,
        )


def _asked(keys: Sequence[Key]) -> Sequence[Key]:
    """Return the keys that are compared: all but those of lines that pass anyway."""
    if int not in set(map(type, keys)):
        return keys
    return [key for key in keys if not isinstance(key, int)]


def _merged(keys: Sequence[Key], answers: Sequence[bool]) -> Iterator[bool]:
    """Yield whether each line passes, up to the first that has no answer."""
    answered = iter(answers)
    for key in keys:
        if isinstance(key, int):
            yield True
        elif (answer := next(answered, None)) is None:
            return
        else:
            yield answer
