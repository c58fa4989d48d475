"""Splitting of bytes into lines, and the first line with each key.

Lines are bytes without their newline.  For speed, functions in C do all work on them, a chunk at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum

Keys = Callable[[list[bytes]], Iterable[bytes | None]]
"""A function from lines to the keys that they are compared by."""

Key = bytes | int
"""The part of a line that is compared, or the number of a line that passes without a comparison."""


def batches(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines of one input as soon as they arrive: those that each chunk completes.

    A last line needs no newline.  A line longer than a chunk costs no more time per byte, but memory holds
    it twice while it is joined.
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


def without_cr(chunks: Iterable[bytes], notice: Callable[[], None]) -> Iterator[bytes]:
    """Yield chunks with LF for each CR LF; call `notice` each time that one has been found."""
    held = b""  # a CR at the end of a chunk, whose LF may come with the next one
    for arrived in chunks:
        chunk = held + arrived
        held = b"\r" if chunk.endswith(b"\r") else b""
        if b"\r\n" in chunk:
            notice()
            chunk = chunk.replace(b"\r\n", b"\n")
        yield chunk.removesuffix(held)
    yield held


class Missing(StrEnum):
    """Treatment of lines without the column or key."""

    KEEP = "keep"
    DROP = "drop"
    ERROR = "error"


def missing_named(text: str) -> Missing:
    """Return a treatment by its name.  Raises `ValueError`."""
    if text not in tuple(Missing):
        raise ValueError(f"{text!r} is not one of {', '.join(Missing)}")
    return Missing(text)


class Columns:
    """Selection of the part of lines that is compared.

    :param keys: a function from lines to that part, None for whole lines.
    :ivar are_whole: lines are compared whole.
    :ivar missed: the number of lines without that part.
    """

    def __init__(self, keys: Keys | None, missing: Missing = Missing.KEEP) -> None:
        self._keys = keys
        self._missing = missing
        self._refused: int | None = None
        self.are_whole = keys is None
        self.missed = 0

    def split(self, lines: list[bytes], before: int) -> tuple[Sequence[Key], Sequence[bytes]]:
        """Return distinct keys and the first line with each; a line that passes anyway has its number as key.

        :param before: the number of lines before these.
        """
        if self._keys is None:
            whole = list(dict.fromkeys(lines))
            return whole, whole
        first: dict[Key, bytes] = {}
        for number, (key, line) in enumerate(zip(self._keys(lines), lines, strict=True), before + 1):
            if key is not None:
                first.setdefault(key, line)
                continue
            self.missed += 1
            if self._missing is Missing.KEEP:
                first[number] = line
            elif self._missing is Missing.ERROR:
                self._refused = number
                break
        return list(first), list(first.values())

    def check(self) -> None:
        """Raise `ValueError` if `split` refused a line; it has returned the lines before that line."""
        if self._refused is not None:
            raise ValueError(
                f"line {self._refused} has no such column or key; --missing keep or drop continues after it"
            )

    def end(self, read: int) -> str | None:
        """Return a warning about lines without the column or key; raise `ValueError` if no line has it.

        :param read: the number of all lines.
        """
        if not self.missed:
            return None
        done = "dropped" if self._missing is Missing.DROP else "kept"
        if self.missed == read:
            raise ValueError(f"no line has such a column or key; all {read:,} were {done}: is it misspelt?")
        return f"lines that were {done} without the column or key: {self.missed:,} of {read:,}"
