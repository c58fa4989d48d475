"""Whether the caller's arguments are good: each check returns the value to use or says what is wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Final, TypeVar

from bloomredis import layouts, sizing
from bloomredis.bitmaps import ForeignLayout
from bloomredis.header import FILTER, Header
from bloomredis.protocol import Wait
from bloomredis.stored import OnLost

T = TypeVar("T")
_LONGEST: Final = 2**52  # milliseconds; 140,000 years, and exact in Lua


def name(value: str) -> str:
    """A filter's name: a str that is not empty."""
    if not isinstance(value, str):
        raise TypeError(f"name must be a str, not {type(value).__name__} {value!r}")
    if not value:
        raise ValueError("name must not be empty, got ''")
    return value


def listed(items: Iterable[T]) -> list[T]:
    """Return items as a list; one string is no iterable of items."""
    if isinstance(items, str | bytes | bytearray | memoryview):
        raise TypeError(f"items must be an iterable of items, not one {type(items).__name__}: {items!r}")
    return list(items)


def template(
    capacity: int | None, error_rate: float | None, layout: str | None, kind: int = FILTER
) -> Header | None:
    """The header of a new filter with these parameters, None if there are none."""
    if layout is not None:
        layouts.check_name(layout)
    given = parameters(capacity, error_rate)
    return given and new_header(*given, layout, kind)


def parameters(capacity: int | None, error_rate: float | None) -> tuple[int, float] | None:
    """What a filter can be created with, None if nothing is given."""
    if capacity is not None and error_rate is not None:
        return capacity, error_rate
    if capacity is None and error_rate is None:
        return None
    missing = "capacity" if capacity is None else "error_rate"
    raise ValueError(f"capacity and error_rate go together; {missing} is missing")


def new_header(capacity: int, error_rate: float, layout: str | None, kind: int = FILTER) -> Header:
    """The header of a new filter; `ValueError` if one key cannot hold it."""
    count = sizing.checked_capacity(capacity)
    rate = sizing.checked_error_rate(error_rate)
    return layouts.new_header(layout or layouts.DEFAULT, count, rate, kind)


def whole(capacity: int, error_rate: float, layout: str | None, kind: int) -> Header:
    """The header of something made of several filters, for all of it together."""
    count = sizing.checked_capacity(capacity)
    rate = sizing.checked_error_rate(error_rate)
    sample = layouts.new_header(layout or layouts.DEFAULT, 1, rate)  # no one key has to hold it
    return replace(sample, capacity=count, kind=kind)


def share(what: str, value: float) -> float:
    """A number strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} must be a float, not {type(value).__name__} {value!r}")
    if not 0.0 < value < 1.0:
        raise ValueError(f"{what} must lie strictly between 0 and 1, not {value}")
    return float(value)


def foreign(layout: ForeignLayout, capacity: int | None, error_rate: float | None) -> ForeignLayout:
    """A layout of another system, which says itself what it is made for."""
    if not callable(getattr(layout, "encode_all", None)):
        raise TypeError(f"layout must be None, a name, or a layout from bloomredis.compat, not {layout!r}")
    for what, given, own in (
        ("capacity", capacity, layout.capacity),
        ("error_rate", error_rate, layout.error_rate),
    ):
        if given is not None and given != own:
            raise ValueError(f"the layout was made for {what} {own}, not {given}; leave {what} to it")
    return layout


def milliseconds(what: str, seconds: float | timedelta) -> int:
    """A duration above zero, in milliseconds rounded up."""
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{what} must be a number of seconds or a timedelta, not {seconds!r}")
    if not 0 < seconds * 1000 <= _LONGEST:
        raise ValueError(f"{what} must be more than 0 seconds, and finite, not {seconds}")
    return math.ceil(seconds * 1000)


def on_lost(value: OnLost, *, can_create: bool) -> OnLost:
    """What to do about a lost filter: "raise", "recreate", or a callable."""
    if value == "raise" or callable(value):
        return value
    if value != "recreate":
        raise ValueError(f'on_lost must be "raise", "recreate" or a callable, not {value!r}')
    if not can_create:
        raise ValueError('on_lost="recreate" needs capacity and error_rate to create the filter with')
    return value


def wait(min_replicas: int, replica_timeout: float | timedelta) -> Wait | None:
    """What a write waits for, None for nothing."""
    if isinstance(min_replicas, bool) or not isinstance(min_replicas, int):
        raise TypeError(f"min_replicas must be an int, not {min_replicas!r}")
    if min_replicas < 0:
        raise ValueError(f"min_replicas must be 0 or more, not {min_replicas}")
    timeout = milliseconds("replica_timeout", replica_timeout)
    return Wait(min_replicas, timeout) if min_replicas else None
