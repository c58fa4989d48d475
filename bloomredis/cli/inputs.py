"""Input lines from files and stdin, with a progress bar."""

from __future__ import annotations

import os
import select
import stat
import sys
import time
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Mapping, Sequence
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
_UTF_16: Final = ("text in UTF-16", "iconv -f UTF-16 -t UTF-8")
_NOT_LINES: Final = {
    b"\x1f\x8b": ("compressed (gzip)", "zcat"),
    b"\x28\xb5\x2f\xfd": ("compressed (zstd)", "zstdcat"),
    b"\xfd7zXZ\0": ("compressed (xz)", "xzcat"),
    b"BZh91AY&SY": ("compressed (bzip2)", "bzcat"),
    BOM_UTF16_LE: _UTF_16,
    BOM_UTF16_BE: _UTF_16,
}
"""The first bytes of files that have no lines, what they are, and the program that prints them as lines."""


def lines_of(
    files: Sequence[Path], stop: Stop, *, quiet: bool, keep_cr: bool = False
) -> Iterator[list[bytes]]:
    """Yield the lines of one file after another, as `files_of` reads them."""
    for lines in files_of(files, stop, quiet=quiet, keep_cr=keep_cr):
        yield from lines


def files_of(
    files: Sequence[Path],
    stop: Stop,
    *,
    quiet: bool,
    keep_cr: bool = False,
    end: bytes = b"\n",
    totals: Mapping[str, int] | None = None,
    idle: Callable[[], object] = lambda: None,
) -> Iterator[Iterator[list[bytes]]]:
    """Yield the lines of each file, as soon as they arrive; the end of a file ends a line.

    :param stop: a signal ends the program while a read waits.
    :param quiet: show no progress if stdout is a terminal, since the lines are printed there.
    :param keep_cr: keep the CR of lines that end in CR LF; else a note on stderr says once that it is left
        out.
    :param totals: what the command has counted so far, such as lines read, for the progress bar.
    :param idle: is called before a read that may have to wait.
    """
    notice = cache(_note_cr)

    def lines(descriptor: int, name: str) -> Iterator[list[bytes]]:
        text = text_of(_chunks(descriptor, stop, advance, idle), name)
        return batches(text if keep_cr or end != b"\n" else without_cr(text, notice), end)

    with _progress(files, totals or {}, quiet=quiet) as advance:
        for path in files:
            if path == STDIN:
                yield lines(sys.stdin.fileno(), "standard input")
            else:
                with stop.waiting():  # opening a named pipe waits for its writer
                    opened = path.open("rb", buffering=0)
                with opened as file:
                    yield lines(file.fileno(), str(path))


def _note_cr() -> None:
    stderr.note("lines end in CR LF; the CR is left out, unless --keep-cr is given")


def text_of(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield chunks without a byte order mark.

    Raises `ValueError` if the first one is the beginning of a compressed file, or of UTF-16.
    """
    first = next(chunks, b"")
    while any(len(first) < len(magic) and magic.startswith(first) for magic in (*_NOT_LINES, BOM_UTF8)):
        if not (more := next(chunks, b"")):
            break
        first += more
    file = "FILE" if name == "standard input" else name
    for magic, (what, program) in _NOT_LINES.items():
        if first.startswith(magic):
            raise ValueError(f"{name} is {what}, not lines: {program} {file} | bloomredis ...")
    yield first.removeprefix(BOM_UTF8)
    yield from chunks


def _chunks(descriptor: int, stop: Stop, advance: Advance, idle: Callable[[], object]) -> Iterator[bytes]:
    """Yield chunks as soon as they arrive; a signal ends the program only here."""
    waits = select.poll()
    waits.register(descriptor, select.POLLIN)
    while True:
        if not waits.poll(0):
            idle()
        if not (chunk := stop.read(descriptor, CHUNK_BYTES)):
            return
        advance(len(chunk))
        yield chunk


@contextmanager
def _progress(files: Sequence[Path], totals: Mapping[str, int], *, quiet: bool) -> Iterator[Advance]:
    """Yield a function that counts bytes, and shows the totals, if there are any, and the lines a second."""
    total, done, began = _total_bytes(files), 0, time.monotonic()
    with progress.shown("reading", quiet=quiet) as show:

        def advance(size: int) -> None:
            nonlocal done
            done += size
            rate = totals.get("read", 0) / max(0.001, time.monotonic() - began)
            told = [f"{number:,} {name}" for name, number in totals.items()]
            show(done, total, ", ".join([*told, f"{rate:,.0f}/s"]) if told else "reading")

        yield advance


def _total_bytes(files: Sequence[Path]) -> int | None:
    found = [os.fstat(sys.stdin.fileno()) if path == STDIN else path.stat() for path in files]
    return sum(one.st_size for one in found) if all(stat.S_ISREG(one.st_mode) for one in found) else None
