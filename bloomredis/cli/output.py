"""How data reaches stdout: at once, unbuffered, and quietly when nobody reads it any more."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping


def write(data: bytes) -> None:
    """Write all of `data` to stdout; a reader that has gone ends the program with SIGPIPE's status, 141."""
    # Below Python's buffer, which would try again at exit.  Never by number: 1 may be a socket.
    stream = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)
    rest = memoryview(data)
    try:
        while rest:
            written = stream.write(rest)
            if written is None:
                raise BlockingIOError("standard output takes no more for now; it must not be non-blocking")
            rest = rest[written:]
    except BrokenPipeError:
        raise SystemExit(128 + signal.SIGPIPE) from None


def show(fields: Mapping[str, object]) -> None:
    """Write one line `key value` for each field, the values aligned."""
    width = max(map(len, fields))
    write("".join(f"{key:<{width}}  {value}\n" for key, value in fields.items()).encode())
