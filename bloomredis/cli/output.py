"""How data reaches stdout: at once, unbuffered, and quietly when nobody reads it any more."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping


def write(data: bytes) -> None:
    """Write all of `data` to stdout; a reader that has gone ends the program with SIGPIPE's status, 141."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(1, rest) :]
    except BrokenPipeError:
        raise SystemExit(128 + signal.SIGPIPE) from None


def show(fields: Mapping[str, object]) -> None:
    """Write one line `key value` for each field, the values aligned."""
    width = max(map(len, fields))
    write("".join(f"{key:<{width}}  {value}\n" for key, value in fields.items()).encode())
