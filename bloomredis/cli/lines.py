"""Splitting of bytes into lines, and of lines into the columns that they are compared by.

Lines are bytes without their newline.  C code does all work on them, a chunk at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

Keys = Callable[[list[bytes]], Iterable[bytes]]
"""A function from lines to the keys that they are compared by."""


def batches(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines of one input as soon as they arrive: those that each chunk completes.

    A last line needs no newline.  A line longer than a chunk costs no more per byte.
    """
    partial: list[bytes] = []
    for chunk in chunks:
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            yield b"".join([*partial, head]).split(b"\n")
            partial = []
        partial.append(tail)
    if last := b"".join(partial):
        yield [last]


def keys(field: int | None, delimiter: str | None) -> Keys:
    r"""Return the keys of lines: the whole line, or column `field`, counted from 1.

    Without a delimiter, columns are split as in awk: at runs of spaces and tabs, ignoring those at the
    start.  A delimiter is a plain string, or `\t`.  A missing column is empty.
    """
    if field is None:
        if delimiter is not None:
            raise ValueError("--delimiter separates columns, so it needs --field")
        return iter
    if delimiter is None:
        return _blank_separated(field)
    if not delimiter:
        raise ValueError("--delimiter must not be empty")
    return _separated(field, delimiter.replace(r"\t", "\t").encode(errors="surrogateescape"))


def _blank_separated(field: int) -> Keys:
    # The pattern matches every line; it is possessive, so that missing columns cost no backtracking.
    match = re.compile(rb"[ \t]*+(?:[^ \t]++[ \t]*+){0,%d}+([^ \t]*+)" % (field - 1)).match
    return lambda lines: [found[1] for found in map(match, lines) if found]


def _separated(field: int, delimiter: bytes) -> Keys:
    def column(line: bytes) -> bytes:
        columns = line.split(delimiter, field)
        return columns[field - 1] if len(columns) >= field else b""

    return lambda lines: map(column, lines)
