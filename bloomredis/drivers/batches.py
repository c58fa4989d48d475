"""Batches of any source of items.

Arrays of numpy, and columns of pandas and Arrow, are cut without a Python loop over their elements.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from bloomredis.arguments import listed

T = TypeVar("T")


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of `size` items, the last one shorter.  Raises TypeError for a single string."""
    if hasattr(items, "__array__") and hasattr(items, "__len__"):
        yield from _slices(items, size)
        return
    source = iter(listed(items) if isinstance(items, str | bytes | bytearray | memoryview) else items)
    while batch := list(islice(source, size)):
        yield batch


async def async_batches(items: Iterable[T] | AsyncIterable[T], size: int) -> AsyncIterator[list[T]]:
    """Yield lists of `size` items of an iterable or an async iterable, the last one shorter."""
    if not isinstance(items, AsyncIterable):
        for batch in batches(items, size):
            yield batch
        return
    batch = []
    async for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _slices(column: Any, size: int) -> Iterator[list[Any]]:
    """Cut an array or a column; numbers come as int, text as str or bytes."""
    rows = getattr(column, "iloc", column)  # pandas: by position, not by label
    for start in range(0, len(column), size):
        piece = rows[start : start + size]
        to_pylist = getattr(piece, "to_pylist", None)  # Arrow
        yield to_pylist() if to_pylist else np.asarray(piece).ravel().tolist()
