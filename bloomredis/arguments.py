"""Checks of a caller's arguments: each returns the value to use, or raises `TypeError` or `ValueError`."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from datetime import timedelta
from functools import lru_cache
from os import PathLike
from typing import Any, Final, Literal, TypeVar

OnLost = Literal["raise", "recreate"]
"""Reaction to a lost filter."""

OnFull = Literal["warn", "raise"]
"""Reaction to a `BloomFilter` past its capacity."""

Missing = Literal["keep", "drop", "raise"]
"""Treatment of an item without a key: handed on unchecked, left out, or an error."""

Renew = bool | float | timedelta
"""The time for which a claim is renewed: a day at most, not at all, or a number of seconds at most."""

_log = logging.getLogger("bloomredis")

T = TypeVar("T")
DAY: Final = 86_400.0  # seconds
_LONGEST: Final = 2**52  # milliseconds; 142,000 years, and exact in Lua
_SHOWN: Final = 100


def shown(value: object) -> str:
    """Return the repr of a caller's value for a message, cut to 100 characters."""
    try:
        text = repr(value)
    except Exception:  # an int with too many digits, or a failing `__repr__`
        return f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def name(value: str) -> str:
    """Return a filter's name, a non-empty str."""
    if not isinstance(value, str):
        order = "; the client comes first, then the name" if hasattr(value, "execute_command") else ""
        raise TypeError(f"name must be a str, not {type(value).__name__} {shown(value)}{order}")
    if not value:
        raise ValueError("name must not be empty")
    _encoded("name", value)
    return value


def owner(value: str) -> bytes:
    """Return the encoded name of a claim's owner, a non-empty str."""
    if not isinstance(value, str):
        raise TypeError(f"owner must be a str or None, not {type(value).__name__} {shown(value)}")
    if not value:
        raise ValueError("owner must not be empty")
    return _encoded("owner", value)


def _encoded(what: str, value: str) -> bytes:
    """Return a text in UTF-8; raise `ValueError` for one that UTF-8 cannot hold."""
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} must be valid Unicode, without lone surrogates such as {error.object[error.start]!r}, "
            f"not {shown(value)}"
        ) from None


def listed(items: Iterable[T]) -> list[T]:
    """Return items as a list; items of an array or a column become Python objects."""
    if type(items) is list:
        return items.copy()
    check_items(items)
    names = ("to_pylist", "tolist", "to_list")  # Arrow; numpy and pandas; polars
    to_list = next((found for name in names if (found := getattr(items, name, None))), None)
    return to_list() if to_list else list(items)


def check_items(items: object) -> None:
    """Raise `TypeError` for what is no iterable, a str, a table, and an array whose items may lack bytes."""
    kind = type(items).__name__
    is_iterable = hasattr(items, "__iter__") or hasattr(items, "__getitem__")
    if isinstance(items, str | bytes | bytearray | memoryview) or not is_iterable:
        lines = "; for the lines of a file, open it and give (line.rstrip() for line in file)"
        raise TypeError(
            f"items must be an iterable of items, not one {kind}: {shown(items)}"
            f"{lines if isinstance(items, PathLike) else ''}"
        )
    # The result of a query has `columns` too, but as a method.
    columns = getattr(items, "columns", None)
    if getattr(items, "ndim", 1) != 1 or (columns is not None and not callable(columns)):
        raise TypeError(f"items must be an iterable of items, not a {kind}: give a column, as in table['id']")
    if getattr(getattr(items, "dtype", None), "kind", "") == "S":
        _check_ends(items)


def _check_ends(array: Any) -> None:
    """Raise `TypeError` unless each item of an array of numpy, of dtype S, has its whole length.

    Such an array drops the zero bytes at the end of its items, as of one digest in 256.
    """
    size = array.dtype.itemsize
    ends = array.view({"names": ["end"], "formats": ["u1"], "offsets": [size - 1], "itemsize": size})["end"]
    if not ends.all():
        raise TypeError(
            f"row {ends.argmin()}: an array of dtype S{size} drops zero bytes at the end of an item, and "
            f"this one has less than {size} bytes. If all items have {size} bytes, such as digests, give "
            f"array.view('V{size}'); if none ends in a zero byte, give array.astype(object)"
        )


def read_from_server(**given: bool) -> None:
    """Raise `ValueError` if a parameter of a new filter was given without the filter's sizes."""
    for what, is_given in given.items():
        if is_given:
            raise ValueError(
                f"{what} is read from the server, like capacity and error_rate; give all of them, or none"
            )


def flag(what: str, value: bool | None, *, optional: bool = False) -> None:  # noqa: FBT001 - the value to check
    """Raise `TypeError` unless `value` is True or False, or None if `optional`."""
    if not isinstance(value, bool) and not (optional and value is None):
        raise TypeError(
            f"{what} must be {'None, ' if optional else ''}True or False, "
            f"not {type(value).__name__} {shown(value)}"
        )


def function(what: str, value: object, kind: str) -> None:
    """Raise `TypeError` unless `value` is a function, or None; `kind` says of what it is one."""
    if value is not None and not callable(value):
        raise TypeError(f"{what} must be a function {kind}, not {type(value).__name__} {shown(value)}")


def share(what: str, value: float) -> float:
    """Return a number strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} must be a float, not {type(value).__name__} {shown(value)}")
    if not 0.0 < value < 1.0:
        raise ValueError(f"{what} must lie strictly between 0 and 1, not {shown(value)}")
    return float(value)


def milliseconds(what: str, seconds: float | timedelta) -> int:
    """Return a positive duration in milliseconds, rounded up."""
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{what} must be a number of seconds or a timedelta, not {shown(seconds)}")
    if not 0 < seconds * 1000 <= _LONGEST:
        raise ValueError(
            f"{what} must be more than 0 and at most {_LONGEST // 1000} seconds, not {shown(seconds)}"
        )
    return math.ceil(seconds * 1000)


def lease(value: float | timedelta) -> int:
    """Return a lease in milliseconds; log a warning for a number that looks like milliseconds already."""
    if isinstance(value, int | float) and value > DAY:
        _warn_of_lease(value)
    return milliseconds("lease", value)


@lru_cache
def _warn_of_lease(value: float) -> None:
    _log.warning(
        "lease=%s are seconds, more than a day, for which a dead worker's item is held; if they were meant "
        "as milliseconds, divide them by 1000; a longer lease can be given as a timedelta",
        shown(value),
    )


def renewal_seconds(renew: Renew) -> float:
    """Return the seconds for which a claim is renewed; a day for True, 0 for False."""
    if isinstance(renew, bool):
        return DAY if renew else 0.0
    return milliseconds("renew, unless it is True or False,", renew) / 1000


def cache_seconds(local_cache: bool | float | timedelta) -> float | None:  # noqa: FBT001 - the value to check
    """Return the seconds for which a process trusts its copy of a filter; None for no copy, 1 for True."""
    if isinstance(local_cache, bool):
        return 1.0 if local_cache else None
    return milliseconds("local_cache, unless it is True or False,", local_cache) / 1000


def one_of(what: str, value: T, *choices: str) -> T:
    """Return a value that is one of some words."""
    if value not in choices:
        first = ", ".join(f'"{each}"' for each in choices[:-1])
        raise ValueError(f'{what} must be {first} or "{choices[-1]}", not {shown(value)}')
    return value


def on_lost(value: OnLost, *, can_create: bool) -> OnLost:
    """Return the reaction to a lost filter."""
    if one_of("on_lost", value, "raise", "recreate") == "recreate" and not can_create:
        raise ValueError('on_lost="recreate" needs capacity and error_rate to create the filter with')
    return value
