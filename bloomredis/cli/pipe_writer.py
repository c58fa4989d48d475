"""Output of lines to stdout that can tell which lines the reader has not taken.

If the reader of a pipe goes away, its unread bytes stay in the pipe, and Linux tells their number.
"""

from __future__ import annotations

import math
import os
import select
import stat
import struct
import sys
import termios
import time
from collections.abc import Sequence
from fcntl import ioctl
from itertools import accumulate
from typing import Final

from bloomredis.cli.output import write_unbuffered
from bloomredis.cli.stopping import Stop

FEW: Final = 1000
"""Lines after which the reader is assumed to read everything."""

_PAUSE: Final = 1  # ms between checks of a pipe that is not empty
_SIGNALLED: Final = 0.5
"""Seconds after a signal in which the reader may go away, too."""
_LINGER: Final = 3  # ms in which a reader of few lines may go away


class NotTakenError(Exception):
    """The last `count` lines were not written, or the reader of the pipe went away without reading them."""

    def __init__(self, count: int, reason: OSError | SystemExit) -> None:
        super().__init__(count, reason)
        self.count = count
        self.reason = reason


class PipeWriter:
    """Stdout, and the number of lines written to it.

    :param waits: after each write, wait until the reader of a pipe has read everything.
    :param end: the byte that ends a line.
    """

    def __init__(self, stop: Stop, *, waits: bool, end: bytes = b"\n") -> None:
        self.lines = 0
        self._end = end
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
        data = self._end.join([*lines, b""])
        error: OSError | SystemExit | None
        taken, error = write_unbuffered(data)
        if error is None and self._is_pipe:
            left, error = self._left_behind()
            taken -= left
        elif self._is_pipe and isinstance(error, BrokenPipeError):
            taken -= self._unread()
        if error is not None:
            ends = accumulate(len(line) + 1 for line in lines)
            whole = sum(end <= taken for end in ends)
            raise NotTakenError(len(lines) - whole, error)
        self.lines += len(lines)

    def _left_behind(self) -> tuple[int, OSError | SystemExit | None]:
        """Wait until the pipe is empty; return the unread bytes of a reader that has gone, and the reason.

        After a signal the wait is short: a terminal's signal ends the reader too, and a reader that stays
        reads what is in the pipe.
        """
        try:
            with self._stop.waiting():
                left = self._unread_at_end(math.inf)
        except SystemExit as ended:
            return self._unread_at_end(time.monotonic() + _SIGNALLED) or 0, ended
        return (0, None) if left is None else (left, BrokenPipeError())

    def _unread_at_end(self, until: float) -> int | None:
        """Wait until the pipe is empty, and return None; if the reader has gone, return the unread bytes."""
        while True:
            gone = bool(self._poll.poll(0))
            unread = self._unread()
            if gone:
                return unread
            if not unread or time.monotonic() > until:
                break
            self._poll.poll(_PAUSE)
        return 0 if self.lines < FEW and self._poll.poll(_LINGER) else None

    def _unread(self) -> int:
        return int(struct.unpack("i", ioctl(self._descriptor, termios.FIONREAD, bytes(4)))[0])
