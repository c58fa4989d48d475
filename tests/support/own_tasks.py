"""Cancellation of the tasks that the library makes, as by a supervisor that cancels every task."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import bloomredis

_LIBRARY: Final = str(Path(bloomredis.__file__).parent)


@contextmanager
def own_tasks_cancelled(
    after: int, every: int = 1, code: str = _LIBRARY
) -> Iterator[list[asyncio.Task[Any]]]:
    """Cancel the tasks that the library makes in the running loop; yield the cancelled ones.

    The tasks of a test have coroutines of its own.

    :param after: the turns of the loop until a task is cancelled; 0 for none, before its first step.
    :param every: cancel only every n-th task.
    :param code: the directory or file whose coroutines run in the tasks to cancel.
    """
    loop = asyncio.get_running_loop()
    cancelled: list[asyncio.Task[Any]] = []
    made = 0

    def cancel(task: asyncio.Task[Any], turns: int) -> None:
        if turns:
            loop.call_soon(cancel, task, turns - 1)
        elif task.cancel():
            cancelled.append(task)

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        nonlocal made
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        if coroutine.cr_code.co_filename.startswith(code):
            made += 1
            if made % every == 0:
                cancel(task, after)
        return task

    loop.set_task_factory(factory)
    try:
        yield cancelled
    finally:
        loop.set_task_factory(None)
