"""Input lines from files and stdin, with a progress bar."""

from __future__ import annotations

import math
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bloomredis.cli import progress
from bloomredis.cli.lines import batches
from bloomredis.cli.stopping import Stop

STDIN = Path("-")
CHUNK_BYTES = 256 * 1024
Advance = Callable[[int], None]


class Reading:
    """Progress through files; `total` is None unless all have a size."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.total = _total_bytes(files)
        self.done = 0

    def expected(self, lines: int) -> int | None:
        """Return about how many lines there are in all, rather too many, if so many were read by now."""
        if self.total is None:
            return None
        return math.ceil(1.1 * lines * max(1.0, self.total / max(1, self.done)))


def lines_of(
    files: Sequence[Path], stop: Stop, *, quiet: bool, reading: Reading | None = None
) -> Iterator[list[bytes]]:
    """Yield the lines of one file after another as soon as they arrive; the end of a file ends a line.

    :param stop: a signal ends the program while a read waits.
    :param quiet: show no progress if stdout is a terminal, since the lines are printed there.
    """
    reading = reading or Reading(files)
    with _progress(reading, quiet=quiet) as advance:
        for path in files:
            if path == STDIN:
                yield from batches(_chunks(sys.stdin.fileno(), stop, advance))
            else:
                with stop.waiting():  # a named pipe waits for its writer
                    opened = path.open("rb", buffering=0)
                with opened as file:
                    yield from batches(_chunks(file.fileno(), stop, advance))


def _chunks(descriptor: int, stop: Stop, advance: Advance) -> Iterator[bytes]:
    """Yield chunks as soon as they arrive; a signal ends the program only here."""
    while chunk := stop.read(descriptor, CHUNK_BYTES):
        advance(len(chunk))
        yield chunk


@contextmanager
def _progress(reading: Reading, *, quiet: bool) -> Iterator[Advance]:
    """Count bytes, and show progress."""
    with progress.shown("reading", quiet=quiet) as show:

        def advance(size: int) -> None:
            reading.done += size
            show(reading.done, reading.total)

        yield advance


def _total_bytes(files: Sequence[Path]) -> int | None:
    found = [os.fstat(sys.stdin.fileno()) if path == STDIN else path.stat() for path in files]
    return sum(one.st_size for one in found) if all(stat.S_ISREG(one.st_mode) for one in found) else None
