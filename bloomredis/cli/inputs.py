"""Where the lines come from, and how far their reading is."""

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
    """Yield the lines of one file after another, as soon as they are there; a file's end ends a line.

    :param stop: while a read waits, a signal ends the program.
    :param quiet: show no progress if stdout is a terminal, which the lines go to.
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
    """Yield what can be read without waiting for more; a signal ends the program here and nowhere else."""
    while True:
        with stop.waiting():
            chunk = os.read(descriptor, CHUNK_BYTES)
        if not chunk:
            return
        yield chunk
        advance(len(chunk))


@contextmanager
def _progress(files: Sequence[Path], *, quiet: bool) -> Iterator[Advance]:
    """Show how far the run is, if stderr is a terminal that the lines themselves do not go to."""
    if not sys.stderr.isatty() or (quiet and sys.stdout.isatty()):
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - most runs show nothing
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("dedupe", total=_total_bytes(files))
        yield lambda size: progress.advance(task, size)


def _total_bytes(files: Sequence[Path]) -> int | None:
    found = [os.fstat(sys.stdin.fileno()) if path == STDIN else path.stat() for path in files]
    return sum(one.st_size for one in found) if all(stat.S_ISREG(one.st_mode) for one in found) else None
