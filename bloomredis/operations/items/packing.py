"""Batches of items, packed for the layout of a filter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bloomredis.bits.batch import Encoded, Prepared, items_and_prepared
from bloomredis.stored.state.handle import Handle

PACKED: Final = 16_384
"""The number of items that are packed together; they are packed again if the filter gets a layer."""


def packed_batch(handle: Handle, batch: Encoded | Prepared) -> tuple[Encoded, bytes]:
    """Return the items of a batch, and all of them packed for the filter."""
    items, prepared = items_and_prepared(batch)
    return items, pack(handle, items, prepared)


def pack(handle: Handle, items: Encoded, prepared: Prepared | None) -> bytes:
    """Return all items packed for the filter."""
    if prepared is not None and prepared.layout == handle.layout:
        return prepared.packed()
    return handle.layout.pack(items)


def range_packer(
    handle: Handle, items: Encoded, first: int, prepared: Prepared | None
) -> tuple[Callable[[int, int], bytes], int]:
    """Return a function that packs a range of items, and the end of the indexes that it takes.

    Items from `first` on are packed together: all of them if they are prepared for the layout, else `PACKED`.
    """
    size = handle.layout.item_bytes
    if not size:
        return lambda start, stop: handle.layout.pack(items[start:stop]), len(items)
    if prepared is not None and prepared.layout == handle.layout:
        packed = prepared.packed()[first * size :]
    else:
        packed = handle.layout.pack(items[first : first + PACKED])
    return lambda start, stop: packed[(start - first) * size : (stop - first) * size], first + len(
        packed
    ) // size
