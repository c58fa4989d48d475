"""Filters that can be merged: those of one class with the same parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bloomredis.errors import FilterMismatchError
from bloomredis.stored.header import FILTER, Header
from bloomredis.stored.saved.format import Saved, called
from bloomredis.stored.shards.record import KIND as SHARDED

_COMPARED: Final = (
    *("layout", "capacity", "error_rate", "encoding"),
    *("num_bits", "num_hashes", "blocks_per_item", "block_bits"),
)
_WAYS_OUT: Final = {
    "ScalingBloomFilter": "ask both, or load the items of one into the other",
    "RotatingBloomFilter": "ask both, since their layers were begun at different times",
    "CountingBloomFilter": "add the items of one to the other, since its counters are raised one by one",
}


def check(name: str, own: Saved, other_name: str, other: Saved) -> None:
    """Raise unless the bits of one can be or-ed into the other.

    :raises TypeError: they are of a class whose bits cannot be united.
    :raises FilterMismatchError: their parameters differ.
    """
    for each, saved in ((name, own), (other_name, other)):
        if saved.kind not in (FILTER, SHARDED):
            of = called(saved)
            raise TypeError(f"{each!r} is a {of}, which cannot be merged: {_WAYS_OUT[of]}")
    for one, another in zip(_parameters(own), _parameters(other), strict=False):
        if one != another:
            raise FilterMismatchError(
                f"{name!r} has {one}, and {other_name!r} has {another}: only filters with the same "
                "parameters can be merged; load the items of one into the other, or ask both"
            )


def whole(saved: Saved) -> Header:
    """Return the header of the filter as a whole: of its one key, or of its record."""
    record = saved.parsed
    if record is None:
        return saved.parts[0].header
    return (record[0] if isinstance(record, tuple) else record).head


def _parameters(saved: Saved) -> Iterator[str]:
    """Yield what two filters that can be merged have in common, for comparison and messages."""
    head, record = whole(saved), saved.parsed
    yield f"class {called(saved)}"
    for field in _COMPARED:
        yield f"{field} {getattr(head, field)}"
    if isinstance(record, tuple):
        yield f"{record[0].shards} shards with seed {record[0].seed}"
