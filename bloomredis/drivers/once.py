"""The decorator `once`: its arguments, and the value of a call whose body is not run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from bloomredis import arguments
from bloomredis.arguments import shown
from bloomredis.drivers.held import HeldClaim
from bloomredis.operations.claims.state import ClaimOptions, ClaimStatus


@dataclass(frozen=True, slots=True)
class Skipped:
    """The return value of a function with `once` whose body was not run.

    `state` is `"done"` if the body has been run for the item, or `"busy"` if another worker holds the item.
    Then `remaining` is the number of seconds until that worker's lease ends, unless the worker extends it.
    """

    item: object
    state: ClaimStatus
    remaining: float


def first_argument(function: Callable[..., object]) -> Callable[..., Any]:
    """Return a function of the arguments of a call that returns the first one, however it is given."""

    def first(*args: Any, **kwargs: Any) -> Any:
        if args:
            return args[0]
        bound = inspect.signature(function).bind(**kwargs)
        bound.apply_defaults()
        for argument in bound.arguments.values():
            return argument
        raise TypeError(f"once() without key= takes the first argument as the item; {function} has none")

    return first


def check_options(lease: float | timedelta, renew: bool, on_busy: object) -> ClaimOptions:  # noqa: FBT001 - as given
    """Return the options of the claims of `once`; raise `TypeError` or `ValueError` for invalid ones."""
    arguments.flag("renew", renew)
    if on_busy is not None and not callable(on_busy):
        raise TypeError(f"on_busy must be a function of the item and the seconds left, not {shown(on_busy)}")
    return ClaimOptions.of(lease, None)


def skipped(item: object, claim: HeldClaim) -> Skipped:
    return Skipped(item, claim.state, claim.remaining)


def check_brackets(bare: tuple[object, ...]) -> None:
    """Raise `TypeError` for `@seen.once` without parentheses."""
    if bare:
        raise TypeError(
            f"once() must be called, with keywords for its options: @seen.once(), not {shown(bare[0])}"
        )


def check_function(function: object, *, is_asyncio: bool) -> None:
    """Raise `TypeError` for an object that is no function, or a function for the other driver."""
    if not callable(function):
        raise TypeError(f"once() decorates functions, as in @seen.once(): {shown(function)} is no function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"once() is not for generators like {shown(function)}: the body runs after the call")
    if inspect.iscoroutinefunction(function) != is_asyncio:
        kinds = ("functions without async", "bloomredis"), ("coroutine functions", "bloomredis.asyncio")
        (what, half), (_, other) = kinds if not is_asyncio else kinds[::-1]
        raise TypeError(f"once() of {half} is for {what}; use a filter of {other} for {shown(function)}")
