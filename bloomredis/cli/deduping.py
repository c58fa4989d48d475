"""The work of `dedupe`: add lines to the filter, and write those that were new.

Adding a line to a shared filter marks it for all runs.  So as long as few lines were written, few are added
at a time: if the reader goes away after n lines, at most about n marked lines are lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import compress, takewhile
from typing import Any, Final, NamedTuple

from bloomredis.cli import stderr
from bloomredis.cli.columns import Columns, Key
from bloomredis.cli.output import fail
from bloomredis.cli.pipe_writer import FEW, NotTakenError, PipeWriter
from bloomredis.errors import BatchInterruptedError, BloomError, OutcomeUnknownError

IN_FLIGHT: Final = 2
"""Batches that a server has at once, so that it works while this process reads, hashes and writes."""


Answers = tuple[list[bool], BaseException | None]
"""Whether each key was new, and the error that interrupted the batch, if any."""


class _Batch(NamedTuple):
    """A batch on its way: its lines with their keys, the keys that are asked, and a wait for the answers."""

    keys: Sequence[Key]
    lines: Sequence[bytes]
    asked: Sequence[Key]
    answers: Callable[[], Answers]


class Deduping:
    """One run of `dedupe`.

    :param writer: takes the new lines; None to count them only.
    :param shared: the filter has a name, by which other runs use it.
    :param repeated: write the lines that were seen before instead.
    :param workers: an executor that asks a server; None for a filter in this process.
    """

    def __init__(
        self,
        seen: Any,
        columns: Columns,
        writer: PipeWriter | None,
        *,
        shared: bool,
        repeated: bool = False,
        workers: Any = None,
    ) -> None:
        self.totals = {"read": 0, "new": 0}
        self._seen = seen
        self._columns = columns
        self._writer = writer
        self._shared = shared and not repeated
        self._repeated = repeated
        self._workers = workers
        self._flying = deque[_Batch]()
        self._untaken = list[Key]()

    def run(self, files: Iterable[Iterator[list[bytes]]]) -> None:
        """Deduplicate file by file, each in batches; keep the first header."""
        headers = list[bytes]()
        try:
            for lines in files:
                header, batches = self._columns.records(lines)
                if not headers:
                    self._write([], header, None)
                headers += header
                for batch in batches:
                    for keys, own in self._pieces(*self._columns.split(batch, self.totals["read"])):
                        self._ask(keys, own)
                    self.totals["read"] += len(batch)
                    self._columns.check()
            self.settle()
        finally:
            while self._flying:
                with suppress(BloomError, OSError, SystemExit):  # the first error is raised already
                    self._finish()
            self._report_untaken()
        if not self._columns.are_whole:
            self.totals["missing"] = self._columns.missed
        if warning := self._columns.end(self.totals["read"]):
            stderr.warn(warning)

    def settle(self) -> None:
        """Wait for the batches on their way, and write their lines."""
        while self._flying:
            self._finish()

    def _pieces(
        self, keys: Sequence[Key], lines: Sequence[bytes]
    ) -> Iterator[tuple[Sequence[Key], Sequence[bytes]]]:
        """Yield the pieces of a batch, each small enough to be marked at once."""
        writer = self._writer
        if writer is None or not self._shared or writer.lines >= len(keys) > 0:
            yield keys, lines
            return
        if writer.lines < FEW:
            self.settle()
            unknown = self._unknown(keys)
            keys, lines = list(compress(keys, unknown)), list(compress(lines, unknown))
        start = 0
        while start < len(keys):
            stop = start + max(1, writer.lines)
            yield keys[start:stop], lines[start:stop]
            if writer.lines < FEW:
                self.settle()
            start = stop

    def _unknown(self, keys: Sequence[Key]) -> list[bool]:
        """Return for each key whether it may be new, without marking it."""
        known = iter(self._seen.contains_many([key for key in keys if not isinstance(key, int)]))
        return [isinstance(key, int) or not next(known) for key in keys]

    def _ask(self, keys: Sequence[Key], lines: Sequence[bytes]) -> None:
        """Begin to mark lines; write those of the batch before."""
        asked: Sequence[Key] = list(dict.fromkeys(keys))
        for before in self._flying:  # so that equal lines are never on their way in two batches
            others = set(before.asked)
            asked = [key for key in asked if key not in others]
        if self._workers is None:
            done = self._add(asked)
            self._flying.append(_Batch(keys, lines, asked, lambda: done))
        else:
            self._flying.append(_Batch(keys, lines, asked, self._workers.submit(self._add, asked).result))
        while len(self._flying) >= (IN_FLIGHT if self._workers else 1):
            self._finish()

    def _finish(self) -> None:
        """Wait for the oldest batch on its way, and write its lines."""
        keys, lines, asked, wait = self._flying.popleft()
        answers, error = wait()
        passed = _merged(asked, answers)
        new = list(compress(asked, passed))
        self.totals["new"] += len(new)
        written: Any = new if self._writer and keys is lines and not self._repeated else []
        if self._writer and written is not new:
            first, unanswered = dict.fromkeys(new), set(asked[len(passed) :])
            written = [
                line
                for key, line in zip(keys, lines, strict=True)
                if (first.pop(key, key) is None) is not self._repeated and key not in unanswered
            ]
        self._write(new, written, error)

    def _add(self, keys: Sequence[Key]) -> Answers:
        """Return the answers, and the error that interrupted the batch, if any."""
        items = [key for key in keys if not isinstance(key, int)] if int in set(map(type, keys)) else keys
        try:
            return self._seen.add_many(items) if items else [], None
        except BatchInterruptedError as error:
            cause = error.__cause__ or error
            if self._shared and isinstance(cause, OutcomeUnknownError):
                lost = f"up to {len(error.tokens):,} lines may be marked as seen and were not printed"
                cause.restate(f"{cause.problem}; {lost}")
            return error.results, cause

    def _write(self, keys: Sequence[Key], lines: Sequence[bytes], error: BaseException | None) -> None:
        """Write lines, and raise the error of their batch."""
        try:
            if self._writer is not None:
                self._writer.put(lines)
        except NotTakenError as left:
            self._untaken += keys[-left.count :] if left.count and self._shared else []
            if error is None:
                fail(left.reason)
        if error is not None:
            raise error

    def _report_untaken(self) -> None:
        """Unmark the lines that were not taken; if the filter cannot remove items, print their number."""
        marked = [key for key in self._untaken if not isinstance(key, int)]
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


def _merged(keys: Sequence[Key], answers: Sequence[bool]) -> Sequence[bool]:
    """Return whether each line passes, up to the first line without an answer."""
    if len(answers) == len(keys):
        return answers
    answered = iter(answers)
    passed = (isinstance(key, int) or next(answered, None) for key in keys)
    return list(takewhile(lambda passes: passes is not None, passed))  # type: ignore[arg-type]
