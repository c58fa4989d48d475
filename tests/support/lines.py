"""Interrupts between two lines of the library's code, as a signal may cause."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupt(BaseException):
    """An unexpected exception."""


@contextmanager
def at_line(where: Callable[..., Any], number: int, act: Callable[[], object]) -> Iterator[list[int]]:
    """Call `act` before the n-th line (from 0) that a function executes; yield the lines so far.

    A function that executes fewer lines is not interrupted.
    """
    code = getattr(where, "__func__", where).__code__
    lines: list[int] = []

    def local(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            lines.append(frame.f_lineno)
            if len(lines) == number + 1:
                sys.settrace(None)
                act()
        return local

    def tracer(frame: FrameType, event: str, _: Any) -> Any:
        return local if event == "call" and frame.f_code is code else None

    sys.settrace(tracer)
    try:
        yield lines
    finally:
        sys.settrace(None)


def interrupt() -> None:
    """Raise an unexpected exception."""
    raise Interrupt
