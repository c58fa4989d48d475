"""Input lines from files and stdin, with a progress bar."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bloomredis.cli.lines import batches
from bloomredis.cli.stopping import Stop

STDIN = Path("-")
CHUNK_BYTES = 256 * 1024
Advance = Callable[[int], None]


def lines_of(files: Sequence[Path], stop: Stop, *, quiet: bool) -> Iterator[list[bytes]]:
    """Yield the lines of one file after another as soon as they arrive; the end of a file ends a line.

    :param stop: a signal ends the program while a read waits.
    :param quiet: show no progress if stdout is a terminal, since the lines are printed there.
    """
    with _progress(files, quiet=quiet) as advance:
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
    while True:
        with stop.waiting():
            chunk = os.read(descriptor, CHUNK_BYTES)
        if not chunk:
            return
        yield chunk
        advance(len(chunk))


@contextmanager
def _progress(files: Sequence[Path], *, quiet: bool) -> Iterator[Advance]:
    """Show progress if stderr is a terminal and the lines are not printed on it."""
    if not sys.stderr.isatty() or (quiet and sys.stdout.isatty()):
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - most runs show no progress
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("dedupe", total=_total_bytes(files))
        yield lambda size: progress.advance(task, size)


def _total_bytes(files: Sequence[Path]) -> int | None:
    found = [os.fstat(sys.stdin.fileno()) if path == STDIN else path.stat() for path in files]
    return sum(one.st_size for one in found) if all(stat.S_ISREG(one.st_mode) for one in found) else None
