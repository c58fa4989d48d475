"""Progress bars on stderr, for work that takes longer than two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

_PATIENCE: Final = 2.0  # seconds

Show = Callable[..., None]
"""A function of the amount done, the total, which is None if unknown, and a text in place of the verb."""


@contextmanager
def shown(what: str, *, quiet: bool = False) -> Iterator[Show]:
    """Yield a function that shows a bar, once two seconds have passed, if stderr is a terminal.

    :param quiet: show no bar if stdout is a terminal too, since it would mix with the data.
    """
    if not sys.stderr.isatty() or (quiet and sys.stdout.isatty()):
        yield lambda *_: None
        return
    begin, task = time.monotonic(), None
    with ExitStack() as stack:
        bar: Any = None

        def show(done: int, total: int | None, told: str = what) -> None:
            nonlocal bar, task
            if bar is None and time.monotonic() - begin > _PATIENCE:
                bar = stack.enter_context(_bar())
                task = bar.add_task(what, total=total)
            if bar is not None:
                bar.update(task, completed=done, total=total, description=told)

        yield show


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import Progress

    return Progress(console=Console(stderr=True), transient=True)
