"""Headers of new filters, and the layouts of stored ones."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final, NotRequired, TypedDict

from bloomredis.arguments import OnLost
from bloomredis.bits import blocked_sizing, sizing
from bloomredis.bits.blocked import Blocked
from bloomredis.bits.classic import Classic, Counting
from bloomredis.bits.limits import MAX_HASHES
from bloomredis.bits.module_items import ModuleItems
from bloomredis.protocol.calls import Wait
from bloomredis.stored.header import COUNTING, FILTER, Header

NAMES: Final = (Classic.name, Blocked.name)
DEFAULT: Final = Blocked.name


class StorageOptions(TypedDict):
    """Options of every kind of storage with a generation.

    `ttl` is the time to live of a new filter in ms, 0 for none.  `encoding` is the number in the header; None
    accepts any.
    """

    ttl: int
    on_lost: OnLost
    wait: Wait | None
    encoding: NotRequired[int | None]


def plan_layout(
    name: str,
    capacity: int,
    error_rate: float,
    finest: float | None = sizing.FINEST,
    *,
    small_blocks: bool = True,
) -> Classic | Blocked:
    """Return the layout of a new filter; raise `ValueError` if one key cannot hold it."""
    if name == Blocked.name:
        return blocked_sizing.plan_blocked(capacity, error_rate, small=small_blocks)
    bits = sizing.num_bits(capacity, error_rate, finest)
    return Classic(num_bits=bits, num_hashes=_num_hashes(capacity, error_rate))


@lru_cache
def new_header(
    capacity: int,
    error_rate: float,
    layout: str | None = None,
    kind: int = FILTER,
    finest: float | None = sizing.FINEST,
    *,
    small_blocks: bool = True,
) -> Header:
    """Return the header of a new filter without its generation; raise `ValueError` if one key cannot hold it.

    :param small_blocks: the blocked layout may use blocks of 128 bits, which layers may not.
    """
    if kind == COUNTING:
        planned: Classic | Blocked = plan_counting(capacity, error_rate)
    else:
        planned = plan_layout(layout or DEFAULT, capacity, error_rate, finest, small_blocks=small_blocks)
    _check_hashes(planned.num_hashes, error_rate)
    return Header(
        layout=planned.name,
        num_hashes=planned.num_hashes,
        num_bits=planned.num_bits,
        capacity=capacity,
        error_rate=error_rate,
        generation=bytes(8),
        blocks_per_item=planned.blocks_per_item,
        block_bits=planned.block_bits,
        kind=kind,
    )


def _check_hashes(number: int, rate: float) -> None:
    """Raise `ValueError` for more hashes an item than the header can store."""
    if number > MAX_HASHES:
        raise ValueError(
            f"error_rate {rate} needs {number} hashes an item; "
            f"at most {MAX_HASHES} are possible: allow a higher error_rate"
        )


def plan_counting(capacity: int, error_rate: float) -> Counting:
    """Return the layout of a new counting filter; raise `ValueError` if one key cannot hold it."""
    counters = sizing.num_counters(capacity, error_rate)
    return Counting(num_bits=counters, num_hashes=_num_hashes(capacity, error_rate))


def _num_hashes(capacity: int, error_rate: float) -> int:
    """Return the hashes an item for the bits of the classic formula, even if the filter has more bits."""
    return sizing.num_hashes(sizing.classic_bits(capacity, error_rate), capacity)


def stored(header: Header) -> Classic | Blocked:
    """Return the layout of a stored filter."""
    check_name(header.layout)
    if header.kind == COUNTING:
        return Counting(num_bits=header.num_bits, num_hashes=header.num_hashes)
    if header.layout == Blocked.name:
        return Blocked(header.num_bits, header.num_hashes, header.blocks_per_item, header.block_bits)
    return Classic(num_bits=header.num_bits, num_hashes=header.num_hashes)


def expected_error_rate(head: Header, items: int) -> float:
    """Return the expected false-positive rate of a filter with this number of items."""
    layout = stored(head)
    if isinstance(layout, Blocked):
        return blocked_sizing.expected_error_rate(items, layout)
    return sizing.classic_error_rate(items, head.num_bits, head.num_hashes)


def check_name(name: str) -> None:
    """Raise `ValueError` if no layout has this name."""
    if name == ModuleItems.name:
        raise ValueError(f"layout {name!r} is for BloomFilter alone, which then grows by itself")
    if name not in NAMES:
        raise ValueError(
            f"layout must be None, {', '.join(map(repr, NAMES))}, or for BloomFilter {ModuleItems.name!r} "
            f"or a layout of bloomredis.compat, not {name!r}"
        )


def template(
    capacity: int | None, error_rate: float | None, layout: str | None, kind: int = FILTER
) -> Header | None:
    """Return the header of a new filter with these parameters; None if neither is given."""
    given = checked_sizes(capacity, error_rate, layout)
    return given and new_header(*given, layout, kind)


def checked_sizes(
    capacity: int | None, error_rate: float | None, layout: str | None
) -> tuple[int, float] | None:
    """Return the checked sizes of a new filter; None if neither is given."""
    if layout is not None:
        check_name(layout)
    return sizing.checked_sizes(capacity, error_rate)


def wanted_parameters(new: Header | None, layout: str | None) -> dict[str, object]:
    """Return the parameters that a stored filter must have, for an object with these arguments."""
    sizes: dict[str, object] = {}
    if new is not None:
        sizes |= {"capacity": new.capacity, "error_rate": new.error_rate}
    return sizes if layout is None else sizes | {"layout": layout}


def whole(capacity: int, error_rate: float, layout: str | None, kind: int) -> Header:
    """Return the header of a filter in layers as a whole."""
    sample = new_header(1, error_rate, layout, small_blocks=False)  # no single key has to hold the capacity
    return replace(sample, capacity=capacity, kind=kind, rules=sizing.RULES)
