"""The decorator `once`: its arguments, the item of a call, and the value of a call without the body."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, overload

from bloomredis import arguments
from bloomredis.arguments import Renew, shown
from bloomredis.drivers.held import HeldClaim
from bloomredis.operations.claims.state import ClaimOptions, ClaimStatus
from bloomredis.operations.codec import Codec, WorkItem

P = ParamSpec("P")
Q = ParamSpec("Q")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class RunsOnce(Protocol[P, R_co]):
    """A function with `once`."""

    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def item(self, *args: P.args, **kwargs: P.kwargs) -> WorkItem:
        """Return the item of a call with these arguments, for `contains`, `add` and `claim`."""

    @overload
    def __get__(self, instance: None, owner: type, /) -> Self: ...

    @overload
    def __get__(
        self: RunsOnce[Concatenate[Any, Q], R_co], instance: object, owner: type, /
    ) -> RunsOnce[Q, R_co]: ...


@dataclass(frozen=True, slots=True)
class Skipped:
    """The return value of a function with `once` whose body was not run; it is false.

    `item` is the value that `key` returned.  `state` is `"done"` if the body has been run for the item, or
    `"busy"` if another worker holds the item.  Then `remaining` is the number of seconds until that worker's
    lease ends, unless the worker extends it.
    """

    item: object
    state: ClaimStatus
    remaining: float

    def __bool__(self) -> bool:
        return False


class Work:
    """The work of a function with `once`: the value and the item of each call."""

    def __init__(
        self,
        functions: dict[str, object],
        name: str | None,
        function: Callable[..., object],
        key: Callable[..., Any] | None,
    ) -> None:
        """Make the work of a function.

        :param functions: the identity of the function of each name, to which this one is added.
        :raises TypeError: `key` is no function.
        :raises ValueError: another function has the name.
        """
        arguments.function("key", key, "of the arguments of a call")
        identity = _identity(function)
        if name is not None and functions.setdefault(name, identity) != identity:
            raise ValueError(
                f"{shown(function)} cannot be the work {name!r}: another function of this filter has that "
                "name, and would share its items; give it another name"
            )
        self._name = name
        self._function = function
        self._method = _method(function)
        self.value: Callable[..., Any] = key or self._first
        """Return the value of `key` for a call, by default the first argument."""

    def of(self, value: object) -> WorkItem:
        """Return the item for a value of `key`."""
        return WorkItem(self._name, value)

    def item(self, *args: Any, **kwargs: Any) -> WorkItem:
        """Return the item of a call; of a method also without `self`, as in `shop.ship.item("order-1")`."""
        if self._method and not (args and self._is_self(args[0])):
            args = (None, *args)
        return self.of(self.value(*args, **kwargs))

    def _is_self(self, given: object) -> bool:
        """Return whether an object has this method, or is None in the place of one."""
        found: Any = getattr(given, self._method, None)
        found = inspect.unwrap(getattr(found, "__func__", found))
        return given is None or found is inspect.unwrap(self._function)

    def _first(self, *args: Any, **kwargs: Any) -> Any:
        at = int(bool(self._method))
        if len(args) > at:
            return args[at]
        bound = inspect.signature(self._function).bind(*args, **kwargs)
        bound.apply_defaults()
        for argument in list(bound.arguments.values())[at:]:
            return argument
        raise TypeError(
            f"once() without key= takes the first argument as the item; {self._function} has none"
        )


def _method(function: Callable[..., object]) -> str:
    """Return the name of a method: a function with `self` or `cls` that is not local to another; else ""."""
    code: Any = inspect.unwrap(function)
    if not inspect.isfunction(code) or code.__qualname__.endswith(f"<locals>.{code.__name__}"):
        return ""
    return code.__name__ if next(iter(inspect.signature(function).parameters), "") in {"self", "cls"} else ""


def check_name(name: str | None, codec: Codec) -> None:
    """Raise `TypeError` or `ValueError` for a name that no work may have, and for a layout without names."""
    if callable(name):
        raise TypeError(
            f'once() must be called, with the name of the work: @seen.once("ship"), not {shown(name)}'
        )
    if name is None:
        return
    if "\0" in arguments.name(name):
        raise ValueError(f"name must not contain a NUL, as {shown(name)} does")
    codec.check_named()


def check_options(lease: float | timedelta, renew: Renew, on_busy: object) -> tuple[ClaimOptions, float]:
    """Return the options of the claims of `once`, and the seconds for which they are renewed.

    :raises TypeError, ValueError: an option is invalid.
    """
    seconds = arguments.renewal_seconds(renew)
    arguments.function("on_busy", on_busy, "of the item and the seconds left")
    return ClaimOptions.of(lease, None), seconds


def skipped(item: object, claim: HeldClaim) -> Skipped:
    return Skipped(item, claim.state, claim.remaining)


def check_function(function: object, *, is_asyncio: bool) -> None:
    """Raise `TypeError` for an object that is no function, or a function for the other driver.

    A function for which this cannot be told is judged by its result: see `complete`.
    """
    if not callable(function):
        raise TypeError(f'once() decorates functions, as in @seen.once("ship"): {shown(function)} is none')
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"once() is not for generators like {shown(function)}: the body runs after the call")
    is_coroutine = any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))
    if is_asyncio and not is_coroutine and not inspect.iscoroutinefunction(inspect.unwrap(function)):
        raise TypeError(
            "once() of bloomredis.asyncio is for coroutine functions: define it with async def, or "
            f"use a filter of bloomredis for {shown(function)}"
        )
    if is_coroutine and not is_asyncio:
        raise TypeError(
            f"once() of bloomredis is for functions without async; use a filter of bloomredis.asyncio for "
            f"{shown(function)}"
        )


def complete(function: object, result: T) -> T:
    """Return a result; raise `TypeError` if its work is yet to be done, and close it if it is a coroutine."""
    if not (inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)):
        return result
    if inspect.iscoroutine(result):
        result.close()
    raise TypeError(
        f"{shown(function)} with once() returned {shown(result)}, whose work is not done yet; the item is "
        "given back.  Let the function do the work before it returns: await the result in an async def, "
        "with a filter of bloomredis.asyncio, or consume the generator"
    )


def _identity(function: Any) -> object:
    """Return what two functions have in common if they are one, perhaps imported twice or made again."""
    while (inner := getattr(inspect.unwrap(function), "func", function)) is not function:
        function = inner
    function = inspect.unwrap(function)
    named = function if hasattr(function, "__qualname__") else type(function)
    module = getattr(named, "__module__", None) or ""  # a builtin function may have none
    name: str = named.__qualname__
    is_anonymous = "<" in name  # a lambda, or local to a function
    code = getattr(function, "__code__", None) if is_anonymous else None
    return getattr(sys.modules.get(module), "__file__", module), name, code
