"""A property that is computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class derived(Generic[T]):  # noqa: N801 - used as a decorator
    """A property that is computed when it is first read; its class needs a `__dict__`.

    Up to Python 3.11, `functools.cached_property` holds a lock while it computes, so a child that is forked
    meanwhile would wait forever.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        if instance is None:
            return self  # type: ignore[return-value]  # as other descriptors of a class do
        value = self._compute(instance)
        instance.__dict__[self._name] = value
        return value
