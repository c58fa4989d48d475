"""A guard before a database: items that are not in the filter are not looked up.

Requests for rows that are not there pass every cache, since a cache has no entry for them.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, ParamSpec, TypeVar

from bloomredis import BloomError

P = ParamSpec("P")
R = TypeVar("R")

LOADED: Final = "bloomredis:guard:loaded"
"""The item that `load` adds last: without it a filter is not whole, and keeps nobody from the database."""

_log = logging.getLogger("bloomredis")


def guard(
    seen: Any, *, key: Callable[..., Any] | None = None, missing: Any = None, marker: Any = LOADED
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator of functions that look items up: what is not in the filter is not looked up.

    ::

        @guard(seen, key=lambda user_id: str(user_id))
        def user(user_id): ...

    Build the filter with `load`, and add an item before its row is committed: what is missing from the
    filter is answered as missing from the database.  A filter that is not there, not whole or not to be
    reached keeps nobody away: then the function is called.  One round trip for a call.

    :param seen: the filter; one of `bloomredis.asyncio` for coroutine functions.
    :param key: returns the item, given the arguments of the call; None for the first argument.
    :param missing: the answer for an item that is not in the filter; an exception (or its class) is raised.
    :param marker: the item that says that all others have been added; None for a filter that another
        program builds, which is taken to be whole.
    """

    def decorate(function: Any) -> Any:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def wait(*args: Any, **kwargs: Any) -> Any:
                items = _items(key, marker, args, kwargs)
                if await _there_asyncio(seen, items):
                    return await function(*args, **kwargs)
                return _answer(missing)

            return wait

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            items = _items(key, marker, args, kwargs)
            return function(*args, **kwargs) if _there(seen, items) else _answer(missing)

        return call

    return decorate


def load(seen: Any, items: Iterable[Any], *, marker: Any = LOADED) -> int:
    """Add all items of a database to a filter, which guards from then on; return how many were read.

    Others may add meanwhile.  After an error call it again, with all items.
    """
    seen.reserve()
    read: int = seen.load(items)
    seen.add(marker)
    return read


async def load_asyncio(seen: Any, items: Any, *, marker: Any = LOADED) -> int:
    """Add all items of a database to a filter of `bloomredis.asyncio`: see `load`."""
    await seen.reserve()
    read: int = await seen.load(items)
    await seen.add(marker)
    return read


def _items(key: Callable[..., Any] | None, marker: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return what to ask the filter for: the item, and the marker."""
    if key is not None:
        item = key(*args, **kwargs)
    elif args:
        item = args[0]
    else:
        raise TypeError("the item is the first argument, which was not given by position; pass key=")
    return [item] if marker is None else [item, marker]


def _there(seen: Any, items: list[Any]) -> bool:
    try:
        return _may_be_there(seen.contains_many(items))
    except BloomError as error:
        return _unguarded(seen, error)


async def _there_asyncio(seen: Any, items: list[Any]) -> bool:
    asked: Awaitable[list[bool]] = seen.contains_many(items)
    try:
        return _may_be_there(await asked)
    except BloomError as error:
        return _unguarded(seen, error)


def _may_be_there(answers: list[bool]) -> bool:
    """True unless the item is missing from a filter that has its marker."""
    there, *whole = answers
    return there or not all(whole)


def _unguarded(seen: Any, error: BloomError) -> bool:
    _log.warning("the database is not guarded by %r: %s", seen.name, error)
    return True


def _answer(missing: Any) -> Any:
    if isinstance(missing, BaseException) or (
        isinstance(missing, type) and issubclass(missing, BaseException)
    ):
        raise missing
    return missing
