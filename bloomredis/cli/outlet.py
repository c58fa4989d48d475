"""Lines handed to whoever reads stdout; it is known which of them were not taken.

What the reader of a pipe has not taken when it goes away lies in the pipe, and Linux says how much that is.
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

from bloomredis.cli.output import send
from bloomredis.cli.stopping import Stop

FEW: Final = 1000
"""Lines after which a reader is taken for one that reads everything."""

_PAUSE: Final = 1  # ms between looks at a pipe that is not empty
_LINGER: Final = 3  # ms for a reader of few lines to go away


class NotTakenError(Exception):
    """The last `count` lines were not written, or not read by the other end of a pipe that is closed now."""

    def __init__(self, count: int, reason: OSError) -> None:
        super().__init__(count, reason)
        self.count = count
        self.reason = reason


class Outlet:
    """Stdout, and the number of lines that were written there.

    :param waits: wait until the reader of a pipe has taken what was written, so that nothing is ahead of it.
    """

    def __init__(self, stop: Stop, *, waits: bool) -> None:
        self.lines = 0
        self._stop = stop
        self._descriptor = sys.stdout.fileno()
        self._is_pipe = waits and stat.S_ISFIFO(os.fstat(self._descriptor).st_mode)
        self._poll = select.poll()
        self._poll.register(self._descriptor, 0)  # an error is reported all the same: nobody reads

    def put(self, lines: Sequence[bytes]) -> None:
        """Write lines.  Raises `NotTakenError` if some were not taken."""
        if not lines:
            return
        data = b"".join([line + b"\n" for line in lines])
        taken, error = send(data)
        if error is None and self._is_pipe and (left := self._left_behind()) is not None:
            taken, error = taken - left, BrokenPipeError()
        if error is not None:
            whole = data.count(b"\n", 0, max(0, taken))
            raise NotTakenError(len(lines) - whole, error)
        self.lines += len(lines)

    def _left_behind(self) -> int | None:
        """Wait until all was read, and return None; return the bytes in the pipe if the reader has gone."""
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
