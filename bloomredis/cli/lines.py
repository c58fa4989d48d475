"""Splitting of bytes into lines, and of lines into the columns that they are compared by.

Lines are bytes without their newline.  C code does all work on them, a chunk at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum

Keys = Callable[[list[bytes]], Iterable[bytes | None]]
"""A function from lines to the keys that they are compared by."""

Key = bytes | int
"""The part of a line that is compared; the line's number if it passes without being compared."""


def batches(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines of one input as soon as they arrive: those that each chunk completes.

    A last line needs no newline.  A line longer than a chunk costs no more time per byte; while it is put
    together it is in memory twice.
    """
    partial: list[bytes] = []
    for chunk in chunks:
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            lines = head.split(b"\n")
            lines[0] = b"".join([*partial, lines[0]])
            partial.clear()
            yield lines
        partial.append(tail)
    if last := b"".join(partial):
        yield [last]


class Missing(StrEnum):
    """Treatment of lines without the asked field."""

    KEEP = "keep"
    DROP = "drop"
    ERROR = "error"


class Columns:
    r"""The part of lines that is compared: the whole line, or column `field`, counted from 1.

    Without a delimiter, columns are split as in awk: at runs of spaces and tabs, ignoring those at the
    start.  A delimiter is a plain string, or `\t`.
    """

    def __init__(self, field: int | None, delimiter: str | None, missing: Missing = Missing.KEEP) -> None:
        self._field = field
        self._missing = missing
        self._refused: int | None = None
        self._keys = None if field is None else keys(field, delimiter)
        if field is None and delimiter is not None:
            raise ValueError("--delimiter separates columns, so it needs --field")

    def split(self, lines: list[bytes], before: int) -> tuple[Sequence[Key], Sequence[bytes]]:
        """Return keys, each once, and the first line with each; a line that passes anyway has a number.

        :param before: lines before these.
        """
        if self._keys is None:
            whole = list(dict.fromkeys(lines))
            return whole, whole
        first: dict[Key, bytes] = {}
        for number, (key, line) in enumerate(zip(self._keys(lines), lines, strict=True), before + 1):
            if key is not None:
                first.setdefault(key, line)
            elif self._missing is Missing.KEEP:
                first[number] = line
            elif self._missing is Missing.ERROR:
                self._refused = number
                break
        return list(first), list(first.values())

    def check(self) -> None:
        """Raise `ValueError` if the last lines had one that is refused; those before it are done."""
        if self._refused is not None:
            raise ValueError(
                f"line {self._refused} has no field {self._field}; --missing keep or drop goes on after such"
            )


def keys(field: int, delimiter: str | None) -> Keys:
    """Return a function from lines to their column `field`, None for a line that has none."""
    if delimiter is None:
        return _blank_separated(field)
    if not delimiter:
        raise ValueError("--delimiter must not be empty")
    return _separated(field, delimiter.replace(r"\t", "\t").encode(errors="surrogateescape"))


def _blank_separated(field: int) -> Keys:
    # The pattern matches every line; it is possessive, so that missing columns cost no backtracking.
    match = re.compile(rb"[ \t]*+(?:[^ \t]++[ \t]*+){0,%d}+([^ \t]*+)" % (field - 1)).match
    return lambda lines: [found[1] or None for found in map(match, lines) if found]


def _separated(field: int, delimiter: bytes) -> Keys:
    def column(line: bytes) -> bytes | None:
        columns = line.split(delimiter, field)
        return columns[field - 1] if len(columns) >= field else None

    return lambda lines: map(column, lines)
