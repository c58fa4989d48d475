"""Batches of items from any iterable.

Arrays of numpy and columns of pandas and Arrow are sliced without a Python loop over their elements.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from bloomredis.arguments import check_items, listed

T = TypeVar("T")


def batches(
    items: Iterable[T], size: int, next_items: Callable[[Iterator[T]], Iterator[T]] = iter
) -> Iterator[list[T]]:
    """Yield lists of `size` items; the last one may be shorter.

    If the source raises, the items that it gave before are yielded first.

    :param next_items: returns the items of the source that may be in the next list; by default all.
    :raises TypeError: for a string, a path, a table, and anything else that is no iterable of items.
    """
    check_items(items)
    if hasattr(items, "__array__") and hasattr(items, "__len__"):
        yield from _slices(items, size)
        return
    source = iter(items)
    failed: Exception | None = None
    while failed is None:
        batch = list[T]()
        try:
            batch.extend(islice(next_items(source), size))  # keeps what came before an error
        except Exception as error:
            failed = error
        if batch:
            yield batch
        elif failed is None:
            return
    raise failed


def can_repeat_all(items: object, rows: int) -> bool:
    """Return whether a call can be repeated with all items: no batch succeeded, and they can be reread."""
    return not rows and not isinstance(items, Iterator | AsyncIterable)


async def async_batches(items: Iterable[T] | AsyncIterable[T], size: int) -> AsyncIterator[list[T]]:
    """Yield the same lists of an iterable or an async iterable."""
    if not isinstance(items, AsyncIterable):
        for batch in batches(items, size):
            yield batch
        return
    batch, failed = list[T](), None
    try:
        async for item in items:
            batch.append(item)
            if len(batch) == size:
                yield batch
                batch = []
    except Exception as error:
        failed = error
    if batch:
        yield batch
    if failed is not None:
        raise failed


def _slices(column: Any, size: int) -> Iterator[list[Any]]:
    """Yield slices of an array or a column as lists of Python objects."""
    rows = getattr(column, "iloc", column)  # pandas: by position, not by label
    for start in range(0, len(column), size):
        yield listed(rows[start : start + size])
