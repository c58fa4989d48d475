"""Some of the values of a sequence, without a copy of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar, overload

from bloomredis.bits.arrays import NDArray, np

T = TypeVar("T")


class Picked(Sequence[T]):
    """The values with these indexes; each is looked up when it is read."""

    __slots__ = ("_own", "_values")

    def __init__(self, values: Sequence[T], own: NDArray[np.intp]) -> None:
        self._values, self._own = values, own

    def __len__(self) -> int:
        return len(self._own)

    def __iter__(self) -> Iterator[T]:
        return map(self._values.__getitem__, self._own.tolist())

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [*Picked(self._values, self._own[index])]
        value: T = self._values[self._own[index]]
        return value
