"""Parts of commands as they are sent (RESP), for commands of which most parts are the same each time."""

from __future__ import annotations

from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.steps import Command


def parts(values: Command) -> bytes:
    """Return parts of a command."""
    texts = [as_bytes(str(value) if isinstance(value, int) else value) for value in values]
    return b"".join([b"$%d\r\n%b\r\n" % (len(text), text) for text in texts])


def beginning(values: Command, *, more: int) -> bytes:
    """Return the beginning of a command: its first parts, behind which come so many more."""
    return b"*%d\r\n%b" % (len(values) + more, parts(values))
