"""How a command ends on SIGINT, SIGTERM and SIGHUP: after what it has begun, cleaned up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """From its making on, a signal ends the program only inside `waiting()`, or as soon as it is entered.

    The end is a `SystemExit` with 128 + the signal's number, so that every `finally` is run.  What is
    done outside of `waiting()` is done to its end, unless the same signal comes again: that one kills.
    """

    def __init__(self) -> None:
        self._waiting = False
        self._received: int | None = None
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                signal.signal(number, self._receive)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let a signal end the program in this block, which must hold nothing that could get lost."""
        self._waiting = True
        try:
            self._end()
            yield
        finally:
            self._waiting = False

    def _receive(self, number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        self._received = number
        if self._waiting:
            self._end()

    def _end(self) -> None:
        if self._received is not None:
            raise SystemExit(128 + self._received)
