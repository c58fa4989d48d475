"""A guard before a database: an item that is not in the filter is not looked up.

Requests for missing rows pass every cache, since a cache has no entry for them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final, ParamSpec, TypeVar

from bloomredis import BloomError, FilterLostError
from bloomredis.contrib._flavours import at_once, awaited, is_filter, reopened, require_async, require_sync
from bloomredis.contrib._outages import Warnings

__all__ = ["guard", "load", "load_asyncio"]

P = ParamSpec("P")
R = TypeVar("R")

LOADED: Final = "bloomredis:guard:loaded"
"""The item that `load` adds last: a filter without it is incomplete, and guards nothing.

The version of the filter follows it: if a lost shard was made again, the marker of before is worth nothing,
although another shard still has it.
"""


def guard(
    seen: Any, *, key: Callable[..., Any] | None = None, missing: Any = None, marker: Any = LOADED
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator for functions that look items up: an item that is not in the filter is not.

    ::

        @guard(seen, key=lambda user_id: str(user_id))
        def user(user_id): ...

    Build the filter with `load`, and add an item before you commit its row: an item that is missing from the
    filter is answered as missing from the database.  If the filter does not exist, is incomplete or does not
    answer, the function is called, and a warning is logged once a minute.
    After a loss the guard opens the filter again, so that it works as soon as any process has loaded the
    filter.  The guard has an object of its own for the filter, which creates nothing.  A call costs one round
    trip.

    :param seen: the filter; for coroutine functions, a filter of `bloomredis.asyncio`.
    :param key: returns the item, given the arguments of the call, or None for a call that is not guarded;
        without `key` the item is the first argument.
    :param missing: the answer for an item that is not in the filter; an exception or its class is raised.
    :param marker: the item that says that all others have been added.  The default is valid for one version
        of the filter; one of your own is not: after the loss of a shard, call `clear()` before `load`.  None
        is for a filter that another program builds; the guard trusts it as complete, and a loss is final for
        this process.
    """
    guarding = _Guard(seen, marker)

    def decorate(function: Any) -> Any:
        if inspect.iscoroutinefunction(function):
            require_async(seen, "guard() of coroutine functions")

            @functools.wraps(function)
            async def wait(*args: Any, **kwargs: Any) -> Any:
                items = _items(key, args, kwargs)
                if not items or await guarding.is_there(items):
                    return await function(*args, **kwargs)
                return _answer(missing)

            return wait

        require_sync(seen, "guard() of functions")

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            items = _items(key, args, kwargs)
            if not items or at_once(guarding.is_there(items)):
                return function(*args, **kwargs)
            return _answer(missing)

        return call

    return decorate


def load(seen: Any, items: Iterable[Any], *, marker: Any = LOADED) -> int:
    """Add all items of a database to a filter, which guards from then on; return the number of items read.

    Other processes may add items meanwhile.  After an error, call it again with all items; after a
    `FilterLostError` call `seen.acknowledge()` or `seen.clear()` first.
    """
    require_sync(seen, "load()")
    return at_once(_load(seen, items, marker))


async def load_asyncio(seen: Any, items: Any, *, marker: Any = LOADED) -> int:
    """Add all items of a database to a filter of `bloomredis.asyncio`: see `load`."""
    require_async(seen, "load_asyncio()")
    return await _load(seen, items, marker)


async def _load(seen: Any, items: Any, marker: Any) -> int:
    await awaited(seen.create())
    whole = reopened(seen)  # which raises if the filter is lost meanwhile, whoever goes on with it
    read: int = await awaited(whole.update(items))
    await awaited(whole.add(_present(whole, marker)))
    return read


def _present(seen: Any, marker: Any) -> Any:
    """Return the marker for the filter as this object has opened it."""
    stored = getattr(seen._operations, "stored", None) if is_filter(seen) else None  # noqa: SLF001 - no public name tells it
    version: bytes = b"" if stored is None else stored.version()
    return f"{LOADED}:{version.hex()}" if marker is LOADED and version else marker


def _items(key: Callable[..., Any] | None, args: Any, kwargs: Any) -> list[Any]:
    """Return the item to look up; none if the call is not guarded."""
    if key is not None:
        item = key(*args, **kwargs)
        return [] if item is None else [item]
    if not args:
        raise TypeError("the item is the first positional argument, and none was given; pass key=")
    return [args[0]]


class _Opened:
    """An object of the guard's own for its filter, which raises a loss and never creates the filter.

    :ivar markers: the items to be asked for with every other; None until the filter was opened.
    :ivar is_whole: the object has seen the marker, so the filter is complete.
    """

    def __init__(self, seen: Any, marker: Any) -> None:
        self.filter = reopened(seen)
        self.markers: list[Any] | None = [] if marker is None else None
        self.is_whole = marker is None


class _Guard:
    """A guard's filter, as it is known at present."""

    def __init__(self, seen: Any, marker: Any) -> None:
        if any(each.__name__ == "RotatingBloomFilter" for each in type(seen).__mro__):
            raise TypeError("guard() needs a filter that forgets nothing, not a RotatingBloomFilter")
        self._seen = seen
        self._marker = marker
        self._warnings = Warnings()
        self._opened: _Opened | None = None
        self._lost: FilterLostError | None = None  # for ever, without a marker

    async def is_there(self, items: list[Any]) -> bool:
        """Return whether an item may be in the database; True if the filter cannot tell."""
        try:
            try:
                return await self._ask(items)
            except FilterLostError as error:
                self._lose(error)
                return await self._ask(items)
        except BloomError as error:
            self._warn(error)
            return True

    async def _ask(self, items: list[Any]) -> bool:
        opened = self.at_present()
        if opened.markers is None:
            await awaited(opened.filter.contains_many(items))  # which opens it
            opened.markers = [_present(opened.filter, self._marker)]
        there, *marked = await awaited(opened.filter.contains_many([*items, *opened.markers]))
        if not there and all(marked) and not opened.is_whole:
            # It may have been tested before the last was added.
            (there,) = await awaited(opened.filter.contains_many(items))
            opened.is_whole = True
        return self._passes(opened, there, marked)

    def _passes(self, opened: _Opened, there: bool, marked: list[bool]) -> bool:  # noqa: FBT001 - an answer of the filter
        """Return whether a call reaches the function; warn if it does because the marker is missing."""
        if all(marked) and (there or not marked or opened.markers == [_present(opened.filter, self._marker)]):
            return there  # an absent item only if the object has not gone on after a loss meanwhile
        self._warn("a load is at work, or has died before its end; then call load() again")
        return True

    def at_present(self) -> _Opened:
        """Return the opened filter; raise its loss if nobody has loaded it since."""
        if self._lost is not None:
            raise self._lost
        opened = self._opened
        if opened is None:
            opened = self._opened = _Opened(self._seen, self._marker)
        return opened

    def _lose(self, error: FilterLostError) -> None:
        """Open the filter anew, unless an empty one would be taken for a complete one."""
        if self._marker is None:
            self._lost = error
            raise error
        self._warn(error)
        self._opened = None

    def _warn(self, reason: BloomError | str) -> None:
        self._warnings.warn("the database is not guarded by %r: %s", self._seen.name, reason)


def _answer(missing: Any) -> Any:
    if isinstance(missing, BaseException) or (
        isinstance(missing, type) and issubclass(missing, BaseException)
    ):
        raise missing
    return missing
