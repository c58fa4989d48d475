"""Interrupts at exactly the points at which CPython runs the handlers of signals.

CPython 3.11 looks for a signal after a call of C code that returns, at a jump back, and where a function
begins or goes on.  A handler of the program may raise there: Ctrl-C, a soft time limit.
"""

from __future__ import annotations

import contextlib
import dis
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import bloomredis
from tests.support.lines import Interrupt

_CHECKED: Final = {
    dis.opmap[name] for name in ("CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "RESUME") if name in dis.opmap
}
_UNCHECKED: Final = dis.opmap["NOP"]
_LIBRARY: Final = str(Path(bloomredis.__file__).parent)


class Point(NamedTuple):
    """A point at which a call was interrupted; `returned` if the interrupt did not end the call."""

    where: str
    returned: bool


def interrupted_at(number: int, call: Callable[[], object]) -> Point | None:
    """Make a call, and interrupt it at the n-th point within the library; return that point.

    None if the call has fewer points.  An interrupt of a finaliser does not end the call.
    """
    answers = list[object]()
    with (
        raised_at(number, Interrupt) as where,
        suppress(BaseException),
    ):  # what becomes of it is not the subject
        answers.append(call())  # which lives until nothing is interrupted any more
    return Point(where[0], bool(answers)) if where else None


@contextmanager
def raised_at(number: int, error: Callable[[], BaseException]) -> Iterator[list[str]]:
    """Raise an error at the n-th point (from 0) within the library; yield the place, once it is reached.

    The managers of contextlib count as its code.
    """
    passed, where = 0, list[str]()
    before: dict[FrameType, int] = {}

    def local(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal passed
        if event == "return":
            before.pop(frame, None)
        if event == "exception":
            before[frame] = _UNCHECKED
        if event == "opcode":
            follows, before[frame] = before.get(frame, dis.opmap["RESUME"]), _opcode(frame)
            passed += follows in _CHECKED
            if passed == number + 1 and not where:
                where.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}")
                sys.settrace(None)
                raise error()
        return local

    def begin(frame: FrameType, event: str, _: Any) -> Any:
        caller = frame.f_back
        if caller in before and before[caller] == dis.opmap["CALL"] and _is_inlined(frame):
            before[caller] = _UNCHECKED
        if where or event != "call" or not _is_traced(frame, caller):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return local

    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    tracer = sys.gettrace()
    sys.settrace(begin)
    try:
        yield where
    finally:
        sys.settrace(tracer)
        before.clear()  # or it keeps the frames, and the operations that they would close, in a cycle
        sys.unraisablehook = hook


def _is_traced(frame: FrameType, caller: FrameType | None) -> bool:
    """Return whether a frame is one of the library, or one of contextlib that it has called."""
    if frame.f_code.co_filename == contextlib.__file__ and caller is not None:
        frame = caller
    return frame.f_code.co_filename.startswith(_LIBRARY)


def _opcode(frame: FrameType) -> int:
    return frame.f_code.co_code[frame.f_lasti]


def _is_inlined(frame: FrameType) -> bool:
    """Return whether the interpreter runs a function in the caller's loop, not by a call of C code."""
    is_generator = frame.f_code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE)
    return not is_generator and not frame.f_code.co_name.startswith("__")
