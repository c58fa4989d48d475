"""How bytes become lines, and lines the columns that they are compared by.

Lines are bytes without their newline.  All work on them is done by C code, a chunk at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

Keys = Callable[[list[bytes]], Iterable[bytes]]
"""What each of the lines is compared by."""


def batches(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines of one input, as soon as they are there: those that each chunk completes.

    A last line without newline is a line too.  A line longer than a chunk costs no more per byte.
    """
    began: list[bytes] = []
    for chunk in chunks:
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            yield b"".join([*began, head]).split(b"\n")
            began = []
        began.append(tail)
    if last := b"".join(began):
        yield [last]


def keys(field: int | None, delimiter: str | None) -> Keys:
    r"""Return what lines are compared by: the whole line, or column `field`, counted from 1.

    Without a delimiter, columns are split as awk does: runs of spaces and tabs separate, those in
    front are skipped.  A delimiter is a plain string, or `\t`.  A missing column is empty.
    """
    if field is None:
        if delimiter is not None:
            raise ValueError("--delimiter says how columns are split, so it needs --field")
        return iter
    if delimiter is None:
        return _blank_separated(field)
    if not delimiter:
        raise ValueError("--delimiter must not be empty")
    return _separated(field, delimiter.replace(r"\t", "\t").encode(errors="surrogateescape"))


def _blank_separated(field: int) -> Keys:
    # It matches every line.  Possessive, so a line with too few columns costs no backtracking.
    match = re.compile(rb"[ \t]*+(?:[^ \t]++[ \t]*+){0,%d}+([^ \t]*+)" % (field - 1)).match
    return lambda lines: [found[1] for found in map(match, lines) if found]


def _separated(field: int, delimiter: bytes) -> Keys:
    def column(line: bytes) -> bytes:
        columns = line.split(delimiter, field)
        return columns[field - 1] if len(columns) >= field else b""

    return lambda lines: map(column, lines)
