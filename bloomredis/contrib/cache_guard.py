"""A guard before a database: an item that is not in the filter is not looked up.

Requests for missing rows pass every cache, since a cache has no entry for them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final, ParamSpec, TypeVar

from bloomredis import BloomError, FilterLostError
from bloomredis.contrib._flavours import require_async, require_sync
from bloomredis.contrib._warnings import Warnings

P = ParamSpec("P")
R = TypeVar("R")

LOADED: Final = "bloomredis:guard:loaded"
"""The item that `load` adds last: a filter without it is incomplete, and guards nothing."""
UNGUARDED: Final = "the database is not guarded by %r: %s"


def guard(
    seen: Any, *, key: Callable[..., Any] | None = None, missing: Any = None, marker: Any = LOADED
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator for functions that look items up: an item that is not in the filter is not.

    ::

        @guard(seen, key=lambda user_id: str(user_id))
        def user(user_id): ...

    Build the filter with `load`, and add an item before you commit its row: an item that is missing from the
    filter is answered as missing from the database.  If the filter does not exist, is incomplete or does not
    answer, the function is called; unless the filter is only incomplete, a warning is logged once a minute.
    After a loss the guard opens the filter again (`reserve`), so that it works as soon as any process has
    loaded the filter.  A call costs one round trip.

    :param seen: the filter; for coroutine functions, a filter of `bloomredis.asyncio`.
    :param key: returns the item, given the arguments of the call, or None for a call that is not guarded;
        without `key` the item is the first argument.
    :param missing: the answer for an item that is not in the filter; an exception or its class is raised.
    :param marker: the item that says that all others have been added.  None is for a filter that another
        program builds; the guard trusts it as complete, and a loss is final for this process.
    """
    guarding = _Guard(seen, has_marker=marker is not None)

    def decorate(function: Any) -> Any:
        if inspect.iscoroutinefunction(function):
            require_async(seen, "guard() of coroutine functions")

            @functools.wraps(function)
            async def wait(*args: Any, **kwargs: Any) -> Any:
                items = _items(key, marker, args, kwargs)
                if not items or await guarding.is_there_asyncio(items):
                    return await function(*args, **kwargs)
                return _answer(missing)

            return wait

        require_sync(seen, "guard() of functions")

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            items = _items(key, marker, args, kwargs)
            if not items or guarding.is_there(items):
                return function(*args, **kwargs)
            return _answer(missing)

        return call

    return decorate


def load(seen: Any, items: Iterable[Any], *, marker: Any = LOADED) -> int:
    """Add all items of a database to a filter, which guards from then on; return the number of items read.

    Other processes may add items meanwhile.  After an error, call it again with all items.
    """
    require_sync(seen, "load()")
    seen.reserve()
    read: int = seen.load(items)
    seen.add(marker)
    return read


async def load_asyncio(seen: Any, items: Any, *, marker: Any = LOADED) -> int:
    """Add all items of a database to a filter of `bloomredis.asyncio`: see `load`."""
    require_async(seen, "load_asyncio()")
    await seen.reserve()
    read: int = await seen.load(items)
    await seen.add(marker)
    return read


def _items(key: Callable[..., Any] | None, marker: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the items to look up, the item and the marker; none if the call is not guarded."""
    if key is not None:
        item = key(*args, **kwargs)
        if item is None:
            return []
    elif args:
        item = args[0]
    else:
        raise TypeError("the item is the first positional argument, and none was given; pass key=")
    return [item] if marker is None else [item, marker]


class _Guard:
    """A guard's filter, and whether it was ever found."""

    def __init__(self, seen: Any, *, has_marker: bool) -> None:
        self._seen = seen
        self._has_marker = has_marker
        self._warnings = Warnings()
        self._is_found = has_marker  # a filter with the marker is there

    def is_there(self, items: list[Any]) -> bool:
        """Return whether an item may be in the database; True if the filter cannot tell."""
        seen = self._seen
        try:
            try:
                answers = seen.contains_many(items)
            except FilterLostError as error:
                self._warn(error)
                if not self._has_marker:  # which an empty filter does not have
                    return True
                seen.reserve()
                answers = seen.contains_many(items)
            if not (any(answers) or self._is_found):
                seen.info()
                self._is_found = True
        except BloomError as error:
            self._warn(error)
            return True
        return _may_be_there(answers)

    async def is_there_asyncio(self, items: list[Any]) -> bool:
        """Return the same for a filter of asyncio."""
        seen = self._seen
        try:
            try:
                answers = await seen.contains_many(items)
            except FilterLostError as error:
                self._warn(error)
                if not self._has_marker:  # as above
                    return True
                await seen.reserve()
                answers = await seen.contains_many(items)
            if not (any(answers) or self._is_found):
                await seen.info()
                self._is_found = True
        except BloomError as error:
            self._warn(error)
            return True
        return _may_be_there(answers)

    def _warn(self, error: BloomError) -> None:
        self._warnings.warn(UNGUARDED, self._seen.name, error)


def _may_be_there(answers: list[bool]) -> bool:
    """False if the item is missing from a complete filter."""
    there, *whole = answers
    return there or not all(whole)


def _answer(missing: Any) -> Any:
    if isinstance(missing, BaseException) or (
        isinstance(missing, type) and issubclass(missing, BaseException)
    ):
        raise missing
    return missing
