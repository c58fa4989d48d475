"""Unbuffered output to stdout, which ends the program quietly if the reader has gone."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping


def write_unbuffered(data: bytes) -> tuple[int, OSError | None]:
    """Write `data` to stdout; return how many bytes were written, and the error that stopped it, if any."""
    # Not through Python's buffer, which would write again at exit.  Not by number: 1 may be a socket.
    stream = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)
    rest = memoryview(data)
    try:
        while rest:
            written = stream.write(rest)
            if written is None:
                raise BlockingIOError("standard output is full; it must not be non-blocking")
            rest = rest[written:]
    except OSError as error:
        return len(data) - len(rest), error
    return len(data), None


def write(data: bytes) -> None:
    """Write all of `data` to stdout, or end as `fail` does."""
    if error := write_unbuffered(data)[1]:
        fail(error)


def fail(error: OSError | SystemExit) -> None:
    """Raise an error of a write, or the end by a signal; exit with 141, as by SIGPIPE, without a reader."""
    if isinstance(error, BrokenPipeError):
        raise SystemExit(128 + signal.SIGPIPE) from None
    raise error


def show(fields: Mapping[str, object]) -> None:
    """Write a line `key value` for each field, with the values aligned."""
    width = max(map(len, fields))
    write("".join(f"{key:<{width}}  {printable(value)}\n" for key, value in fields.items()).encode())


def printable(value: object) -> str:
    """Return a value as text that is safe for a terminal: control characters become escape sequences."""
    text = str(value)
    return text if text.isprintable() else repr(text)[1:-1]
