"""Checks that an adapter gets a filter of the module that it needs: `bloomredis` or `bloomredis.asyncio`."""

from __future__ import annotations

from typing import Any, Final

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
