"""Splitting of bytes into lines.

Lines are bytes without their newline.  For speed, functions in C do all work on them, a chunk at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator


def batches(chunks: Iterable[bytes], end: bytes = b"\n") -> Iterator[list[bytes]]:
    """Yield the lines of one input as soon as they arrive: those that each chunk completes.

    A line ends with `end`, or at the end of the input.  A line longer than a chunk costs no more time per
    byte, but memory holds it twice while it is joined.
    """
    partial: list[bytes] = []
    for chunk in chunks:
        head, newline, tail = chunk.rpartition(end)
        if newline:
            lines = head.split(end)
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
