"""Bodies of requests: a body that was cut off, and the rest of a body that no application reads."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

MOST_DROPPED: Final = 64 * 1024 * 1024
"""Bytes of a body that are read and dropped before an answer that does not need them.

Many servers close the connection after an answer to a request whose body they have not read; a sender that
is still sending then never gets the answer.
"""
PIECE: Final = 64 * 1024
"""Bytes that are read at a time."""


class AsgiBody:
    """The body of an ASGI request, which the application gets by `receive`."""

    def __init__(self, receive: Callable[[], Awaitable[Any]]) -> None:
        self._receive = receive
        self._has_ended = False
        self.is_cut = False
        """True if the application got the news that the sender hung up before the end of the body."""

    async def receive(self) -> Any:
        """Return the next message for the application."""
        message = await self._receive()
        is_disconnect = message["type"] == "http.disconnect"
        self.is_cut |= is_disconnect and not self._has_ended
        self._has_ended |= is_disconnect or not message.get("more_body", False)
        return message

    async def drop(self) -> None:
        """Read the rest of the body, up to a limit."""
        left = MOST_DROPPED
        while left > 0 and not self._has_ended:
            left -= len((await self.receive()).get("body", b""))


class WsgiBody(io.BufferedIOBase):
    """The body of a WSGI request in the place of `wsgi.input`; it counts the bytes that are read."""

    def __init__(self, environ: dict[str, Any]) -> None:
        self._stream = environ["wsgi.input"]
        self._is_terminated = bool(environ.get("wsgi.input_terminated"))
        self._length = length_of(environ)
        self._count = 0
        self._has_ended = False  # in the last call
        environ["wsgi.input"] = self

    @property
    def is_cut(self) -> bool:
        """True if the application has met the end of the stream, or an error, before the end of the body."""
        return self._has_ended and self._count < self._length

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        return self._counted(self._stream.read, size)

    read1 = read

    def readline(self, size: int | None = -1, /) -> bytes:
        found = self._counted(self._stream.readline, size)
        self._has_ended &= not found.endswith(b"\n")
        return found

    def _counted(self, read: Callable[..., bytes], size: int | None) -> bytes:
        """Return the bytes that a function reads; the body has ended if they are too few."""
        self._has_ended = True  # also after an error
        limit = -1 if size is None else size
        found = read() if limit < 0 else read(limit)
        self._has_ended = len(found) != limit
        self._count += len(found)
        return found

    def drop(self) -> None:
        """Read the rest of the body, up to a limit."""
        left = self._length - self._count
        drop(self._stream.read, MOST_DROPPED if left <= 0 and self._is_terminated else left)
        self._stream = io.BytesIO()  # since a read after the end of the body would wait in some servers


def drop(read: Callable[[int], bytes], left: int) -> None:
    """Read so many bytes, up to a limit or the end of the body."""
    left = min(left, MOST_DROPPED)
    with suppress(Exception):  # the sender has hung up, or sends an invalid body; nobody needs it
        while left > 0 and (found := read(min(left, PIECE))):
            left -= len(found)


def length_of(environ: dict[str, Any]) -> int:
    """Return the length that a request declares for its body; 0 if it declares none."""
    declared = environ.get("CONTENT_LENGTH") or ""
    return int(declared) if declared.isdecimal() else 0
