"""Interrupts between two lines of the library's code, as a signal may cause."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any


class Interrupt(BaseException):
    """An unexpected exception."""


@contextmanager
def at_line(
    where: Callable[..., Any] | ModuleType, number: int, act: Callable[[], object]
) -> Iterator[list[int]]:
    """Call `act` before the n-th line (from 0) that a function or module executes; yield the lines so far.

    If fewer lines are executed, nothing is interrupted.  The end of a `with` block is no line: the
    interpreter handles no signal between the block and the call of `__exit__`.
    """
    file = where.__file__ if isinstance(where, ModuleType) else None
    code = None if file else getattr(where, "__func__", where).__code__
    lines: list[int] = []

    def local(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and not _ends_a_block(frame, lines):
            lines.append(frame.f_lineno)
            if len(lines) == number + 1:
                sys.settrace(None)
                act()
        return local

    def tracer(frame: FrameType, event: str, _: Any) -> Any:
        is_there = frame.f_code is code or frame.f_code.co_filename == file
        return local if event == "call" and is_there else None

    sys.settrace(tracer)
    try:
        yield lines
    finally:
        sys.settrace(None)


def _ends_a_block(frame: FrameType, before: Sequence[int]) -> bool:
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return frame.f_lineno in before and text.lstrip().startswith("with ")


def interrupt() -> None:
    """Raise an unexpected exception."""
    raise Interrupt
