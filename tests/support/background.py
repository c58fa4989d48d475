"""Work in other threads and in forked children, and its outcome."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, NoReturn, TypeVar

T = TypeVar("T")

PATIENCE = 60
"""Seconds after which a waiting call counts as hanging."""


def started(work: Callable[[], T]) -> Future[T]:
    """Run in a daemon thread, which cannot keep the process alive if it hangs."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # including those that end a thread
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def outcome(future: Future[Any]) -> Any:
    """Return the result of a thread, or the error that ended it."""
    error = future.exception(PATIENCE)
    return future.result() if error is None else error


class Child(Generic[T]):
    """A forked child that does some work.

    :param fork: starts the child like `os.fork`, perhaps without Python's hooks.
    """

    def __init__(self, work: Callable[[], T], fork: Callable[[], int] = os.fork) -> None:
        self._reader, writer = os.pipe()
        self._pid = fork()
        if self._pid == 0:
            _report(work, writer)
        os.close(writer)

    def result(self) -> T:
        """Wait for the child, and return its result or raise its error."""
        with os.fdopen(self._reader, "rb") as stream:
            data = stream.read()
        os.waitpid(self._pid, 0)
        assert data, "the child hung, or was killed"
        found: Any = pickle.loads(data)  # noqa: S301 - its own child's
        if isinstance(found, BaseException):
            raise found
        result: T = found
        return result


def forked(work: Callable[[], T]) -> T:
    """Run in a forked child and return the result."""
    return Child(work).result()


def _report(work: Callable[[], Any], writer: int) -> NoReturn:
    """Write the result of the work, or its error, to a pipe, and end the process."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(PATIENCE)
    try:
        found = pickle.dumps(work())
    except BaseException as error:
        found = pickle.dumps(AssertionError(repr(error)))
    with os.fdopen(writer, "wb") as stream:
        stream.write(found)
    os._exit(0)
