"""Output of lines to stdout that can tell which lines the reader has not taken.

If the reader of a pipe goes away, its unread bytes stay in the pipe, and Linux tells their number.
"""

from __future__ import annotations

import os
import select
import stat
import struct
import sys
import termios
from collections.abc import Sequence
from fcntl import ioctl
from typing import Final

from bloomredis.cli.output import write_unbuffered
from bloomredis.cli.stopping import Stop

FEW: Final = 1000
"""Lines after which the reader is assumed to read everything."""

_PAUSE: Final = 1  # ms between checks of a pipe that is not empty
_LINGER: Final = 3  # ms in which a reader of few lines may go away


class NotTakenError(Exception):
    """The last `count` lines were not written, or the reader of the pipe went away without reading them."""

    def __init__(self, count: int, reason: OSError) -> None:
        super().__init__(count, reason)
        self.count = count
        self.reason = reason


class Outlet:
    """Stdout, and the number of lines written to it.

    :param waits: after each write, wait until the reader of a pipe has read everything.
    """

    def __init__(self, stop: Stop, *, waits: bool) -> None:
        self.lines = 0
        self._stop = stop
        self._descriptor = sys.stdout.fileno()
        self._is_pipe = waits and stat.S_ISFIFO(os.fstat(self._descriptor).st_mode)
        self._poll = select.poll()
        self._poll.register(
            self._descriptor, 0
        )  # no events: a poll then reports only that the reader has gone

    def put(self, lines: Sequence[bytes]) -> None:
        """Write lines.  Raises `NotTakenError` if some were not taken."""
        if not lines:
            return
        data = b"".join([line + b"\n" for line in lines])
        taken, error = write_unbuffered(data)
        if error is None and self._is_pipe and (left := self._left_behind()) is not None:
            taken, error = taken - left, BrokenPipeError()
        if error is not None:
            whole = data.count(b"\n", 0, max(0, taken))
            raise NotTakenError(len(lines) - whole, error)
        self.lines += len(lines)

    def _left_behind(self) -> int | None:
        """Wait until the pipe is empty and return None; if the reader has gone, return the unread bytes."""
        with self._stop.waiting():
            while True:
                gone = bool(self._poll.poll(0))
                unread = self._unread()
                if gone:
                    return unread
                if not unread:
                    break
                self._poll.poll(_PAUSE)
            return 0 if self.lines < FEW and self._poll.poll(_LINGER) else None

    def _unread(self) -> int:
        return int(struct.unpack("i", ioctl(self._descriptor, termios.FIONREAD, bytes(4)))[0])
