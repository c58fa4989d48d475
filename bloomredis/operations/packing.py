"""Packing of a batch for its script calls, piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bloomredis.bits.batch import Encoded, Prepared
from bloomredis.stored.handle import Handle

PACKED: Final = 16_384
"""Items that are packed together; more would be to do again where the filter gets another layer."""


def pack(handle: Handle, items: Encoded, prepared: Prepared | None) -> bytes:
    """Return all items packed for the filter."""
    if prepared is not None and prepared.layout == handle.layout:
        return prepared.packed()
    return handle.layout.pack(items)


def cutter(
    handle: Handle, items: Encoded, first: int, prepared: Prepared | None
) -> tuple[Callable[[int, int], bytes], int]:
    """Return what packs items from one index to another for the filter, and the index where it ends.

    Those from the `first` on are packed together: all that were prepared for it, or a number of them.
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
