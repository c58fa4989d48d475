"""The expiry of a private filter on a shared server: it outlives its program by an hour at most."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

SECONDS: Final = 3600.0


@contextmanager
def renewed(found: Any, seconds: float = SECONDS) -> Iterator[None]:
    """Let a filter expire in `seconds`, and postpone that repeatedly during this block."""
    if not hasattr(found, "expire"):  # a rotating filter expires by itself
        yield
        return
    ended = threading.Event()
    found.expire(seconds)
    thread = threading.Thread(target=_renew, args=(found, seconds, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _renew(found: Any, seconds: float, ended: threading.Event) -> None:
    while not ended.wait(seconds / 6):
        try:
            found.expire(seconds)
        except Exception:  # noqa: S112 - the next call of the program meets the same error, and reports it
            continue
