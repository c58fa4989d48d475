"""Orderly exit on SIGINT, SIGTERM and SIGHUP, which completes work in progress first."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """A signal handler that ends the program inside `waiting()`, or at its next entry.

    The program ends by `SystemExit` with 128 + the signal's number, so that every `finally` runs.  Work
    outside of `waiting()` is completed, unless the same signal arrives again: that kills the program.
    """

    def __init__(self) -> None:
        self._waiting = False
        self._received: int | None = None
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP; keep that
                signal.signal(number, self._receive)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let a signal end the program in this block, which must not do work that could be lost."""
        self._waiting = True
        try:
            self._end()
            yield
        finally:
            self._waiting = False

    def read(self, descriptor: int, size: int) -> bytes:
        """Read the bytes that have arrived, or wait for some; a signal ends the program meanwhile.

        A signal that arrives just before a read begins to wait would not interrupt the read.  So this
        method polls a descriptor of the signals too.
        """
        with self.waiting(), _woken() as wakes:
            waits = select.poll()
            waits.register(descriptor, select.POLLIN)
            waits.register(wakes, select.POLLIN)
            while descriptor not in dict(waits.poll()):
                os.read(wakes, 1)  # the byte of a signal that does not end the program
            return os.read(descriptor, size)

    def _receive(self, number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        self._received = number
        if self._waiting:
            self._end()

    def _end(self) -> None:
        if self._received is not None:
            raise SystemExit(128 + self._received)


@contextmanager
def _woken() -> Iterator[int]:
    """Yield a descriptor that can be read once a signal has arrived."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)
