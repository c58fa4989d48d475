"""Filters of `bloomredis` and of `bloomredis.asyncio`: which one an adapter gets, and code for both.

Such code is a coroutine function that awaits each call by `awaited`.  Over a filter of `bloomredis` it waits
for nothing, and `at_once` returns its result.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

R = TypeVar("R")

SYNC: Final = ("bloomredis", "__exit__")
ASYNC: Final = ("bloomredis.asyncio", "__aexit__")
"""A module of filters, and a method that only its filters have.  A mock has both."""


def require_sync(filter_: Any, for_: str) -> None:
    """Raise `TypeError` for a filter of `bloomredis.asyncio`, and for an object that is no filter.

    :param for_: what needs the filter: the subject of the error.
    """
    _require(filter_, for_, SYNC, ASYNC)


def require_async(filter_: Any, for_: str) -> None:
    """Raise `TypeError` for a filter of `bloomredis`, and for an object that is no filter."""
    _require(filter_, for_, ASYNC, SYNC)


def _require(filter_: Any, for_: str, wanted: tuple[str, str], other: tuple[str, str]) -> None:
    (module, method), (other_module, other_method) = wanted, other
    if isinstance(filter_, type):
        raise TypeError(f"{for_} needs a filter of {module}, not the class {filter_.__name__}: call it")
    name = type(filter_).__name__
    if not callable(getattr(filter_, "contains_many", None)):
        raise TypeError(f"{for_} needs a filter, as of {module}.BloomFilter(), not {name}")
    if hasattr(filter_, other_method) and not hasattr(filter_, method):
        raise TypeError(f"{for_} needs a {module}.{name}, not a {other_module}.{name}")


def is_filter(seen: Any) -> bool:
    """Return whether an object is a filter of this package, not a mock of one."""
    return hasattr(type(seen), "_reopened")


def reopened(seen: Any) -> Any:
    """Return an object for the stored filter that raises a loss, and never creates the filter."""
    return seen._reopened() if is_filter(seen) else seen  # noqa: SLF001 - `open` wants the client


async def awaited(value: Any) -> Any:
    """Return a value, or that of an awaitable."""
    return await value if inspect.isawaitable(value) else value


def at_once(coroutine: Coroutine[Any, Any, R]) -> R:
    """Return the result of a coroutine that waits for nothing.

    :raises RuntimeError: it waits.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: R = end.value
        return result
    coroutine.close()
    raise RuntimeError(f"{coroutine!r} waits: a call of a filter of bloomredis returns at once")
