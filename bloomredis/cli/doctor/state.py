"""The state of a stored filter of any kind, read without changing anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from bloomredis import FilterInfo
from bloomredis.bits.module_items import ModuleItems
from bloomredis.cli import filters
from bloomredis.cli.doctor.findings import one_line
from bloomredis.cli.kinds import CLASSES, Kind
from bloomredis.drivers.sync import drive
from bloomredis.errors import BloomError, FilterMismatchError
from bloomredis.stored.header import Header
from bloomredis.stored.one_key.single import StoredFilter
from bloomredis.stored.planning import expected_error_rate


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A stored filter.

    `capacity` and `error_rate` are the parameters it was created with.  `room` is its capacity by now, with
    all layers.  `rate` is the false-positive rate to expect with the `count` items that it holds.
    """

    kind: Kind = Kind.FIXED
    capacity: int
    error_rate: float
    room: int
    count: int
    rate: float
    ttl: float | None

    @property
    def called(self) -> str:
        """Name of the filter's class."""
        return CLASSES[self.kind]


def state(client: Any, name: str, layout: str | None) -> State | BloomError:
    """Return the state of the filter with the name, or the error of reading it."""
    try:
        return _fixed(client, name) if layout is None else _any(client, name, layout)
    except FilterMismatchError:
        pass
    except (BloomError, ResponseError) as error:
        return _as_error(error)
    try:
        return _any(client, name, layout)
    except (BloomError, ResponseError) as error:
        return _as_error(error)


def _fixed(client: Any, name: str) -> State:
    known = StoredFilter(name, new=None, layout=None, ttl=0, on_lost="raise", wait=None)
    found = drive(client, known.describe())
    return of_header(found.header, found.ttl)


def of_header(head: Header, ttl: float | None) -> State:
    """Return the state of a filter in one key, by its header alone."""
    return State(
        capacity=head.capacity,
        error_rate=head.error_rate,
        room=head.capacity,
        count=head.count,
        rate=expected_error_rate(head, head.count),
        ttl=ttl,
    )


def _any(client: Any, name: str, layout: str | None) -> State:
    found = filters.opened(client, name, layout)
    kind, about = filters.kind_of(found), found.info()
    made_with = filters.stored_parameters(found, about)
    return State(
        kind=kind,
        capacity=made_with["capacity"],
        error_rate=made_with["error_rate"],
        room=_room(about),
        count=about.approximate_count if kind is Kind.COUNTING else about.count,
        rate=about.estimated_error_rate,
        ttl=about.ttl,
    )


def _room(about: FilterInfo) -> int:
    """Return the capacity of a filter by now; a filter of the server's module grows by itself."""
    grown = sum(layer.capacity for layer in about.layers) if about.layout == ModuleItems.name else 0
    return max(about.capacity, grown)


def _as_error(error: BloomError | ResponseError) -> BloomError:
    return (
        error if isinstance(error, BloomError) else BloomError(f"{type(error).__name__}: {one_line(error)}")
    )
