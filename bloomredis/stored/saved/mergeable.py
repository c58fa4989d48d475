"""The check that two filters can be merged: same class, same parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bloomredis.errors import FilterMismatchError
from bloomredis.stored.header import Header
from bloomredis.stored.saved.format import Saved, called
from bloomredis.stored.shards.record import ShardRecord

_COMPARED: Final = (
    *("layout", "capacity", "error_rate", "encoding"),
    *("num_bits", "num_hashes", "blocks_per_item", "block_bits"),
)
_WAYS_OUT: Final = {
    "ScalingBloomFilter": "ask both filters, or load the items of one from their source into the other",
    "RotatingBloomFilter": "ask both filters: their layers were begun at different times",
    "CountingBloomFilter": "ask both filters, or add the items of one from their source to the other",
}


def check_mergeable(name: str, own: Saved, other_name: str, other: Saved) -> None:
    """Raise unless the bits of one filter can be or-ed into the other.

    :raises TypeError: the class of a filter does not allow it.
    :raises FilterMismatchError: the filters' parameters differ.
    """
    for each, saved in ((name, own), (other_name, other)):
        check_class(each, called(saved))
    for one, another in zip(_parameters(own), _parameters(other), strict=False):
        if one != another:
            raise FilterMismatchError(
                f"{name!r} has {one}, and {other_name!r} has {another}: only filters with the same "
                "parameters can be merged",
                advice="load one filter's items from their source into the other, or ask both filters",
                command="add one filter's items from their source to the other, or check both filters",
            )


def check_class(name: str, of: str) -> None:
    """Raise `TypeError` for a filter of a class that cannot be merged."""
    if of in _WAYS_OUT:
        raise TypeError(f"{name!r} is a {of}, which cannot be merged: {_WAYS_OUT[of]}")


def whole(saved: Saved) -> Header:
    """Return the header of the whole filter: that of its one key or of its record."""
    record = saved.parsed
    if record is None:
        return saved.parts[0].header
    return record.head


def _parameters(saved: Saved) -> Iterator[str]:
    """Yield the parameters that must be equal for a merge, as words for a message."""
    head, record = whole(saved), saved.parsed
    yield f"class {called(saved)}"
    for field in _COMPARED:
        yield f"{field} {getattr(head, field)}"
    if isinstance(record, ShardRecord):
        yield f"{record.shards} shards with seed {record.seed}"
