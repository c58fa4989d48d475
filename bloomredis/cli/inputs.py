"""Input lines from files and stdin, with a progress bar."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from bloomredis.cli import progress, stderr
from bloomredis.cli.lines import batches, without_cr
from bloomredis.cli.stopping import Stop

STDIN = Path("-")
CHUNK_BYTES = 256 * 1024
Advance = Callable[[int], None]
_COMPRESSED: Final = {
    b"\x1f\x8b": ("gzip", "zcat"),
    b"\x28\xb5\x2f\xfd": ("zstd", "zstdcat"),
    b"\xfd7zXZ\0": ("xz", "xzcat"),
    b"BZh91AY&SY": ("bzip2", "bzcat"),
}
"""The first bytes of compressed files, what they are, and the program that prints them."""


class Reading:
    """Progress through files, in bytes; `total` is None unless all are regular files."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.total = _total_bytes(files)
        self.done = 0


def lines_of(
    files: Sequence[Path], stop: Stop, *, quiet: bool, keep_cr: bool = False
) -> Iterator[list[bytes]]:
    """Yield the lines of one file after another, as soon as they arrive; the end of a file ends a line.

    :param stop: a signal ends the program while a read waits.
    :param quiet: show no progress if stdout is a terminal, since the lines are printed there.
    :param keep_cr: keep the CR of lines that end in CR LF; else a note on stderr says once that it is left
        out.
    """
    reading = Reading(files)
    notice = cache(_note_cr)

    def lines(descriptor: int, name: str) -> Iterator[list[bytes]]:
        text = _text(_chunks(descriptor, stop, advance), name)
        return batches(text if keep_cr else without_cr(text, notice))

    with _progress(reading, quiet=quiet) as advance:
        for path in files:
            if path == STDIN:
                yield from lines(sys.stdin.fileno(), "standard input")
            else:
                with stop.waiting():  # opening a named pipe waits for its writer
                    opened = path.open("rb", buffering=0)
                with opened as file:
                    yield from lines(file.fileno(), str(path))


def _note_cr() -> None:
    stderr.note("lines end in CR LF; the CR is left out, unless --keep-cr is given")


def _text(chunks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yield chunks.  Raises `ValueError` if the first one is the beginning of a compressed file."""
    first = True
    for chunk in chunks:
        if first:
            _check_text(chunk, name)
            first = False
        yield chunk


def _check_text(beginning: bytes, name: str) -> None:
    for magic, (what, program) in _COMPRESSED.items():
        if beginning.startswith(magic):
            file = "FILE" if name == "standard input" else name
            raise ValueError(f"{name} is compressed ({what}), not lines: {program} {file} | bloomredis ...")


def _chunks(descriptor: int, stop: Stop, advance: Advance) -> Iterator[bytes]:
    """Yield chunks as soon as they arrive; a signal ends the program only here."""
    while chunk := stop.read(descriptor, CHUNK_BYTES):
        advance(len(chunk))
        yield chunk


@contextmanager
def _progress(reading: Reading, *, quiet: bool) -> Iterator[Advance]:
    """Yield a function that counts bytes and shows progress."""
    with progress.shown("reading", quiet=quiet) as show:

        def advance(size: int) -> None:
            reading.done += size
            show(reading.done, reading.total)

        yield advance


def _total_bytes(files: Sequence[Path]) -> int | None:
    found = [os.fstat(sys.stdin.fileno()) if path == STDIN else path.stat() for path in files]
    return sum(one.st_size for one in found) if all(stat.S_ISREG(one.st_mode) for one in found) else None
