"""Kinds of filters to simulate: construction, calls, and an observer of the stored data.

Another kind is another entry of `KINDS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from mmh3 import hash_bytes

import bloomredis
import bloomredis.asyncio
from bloomredis.operations.kinds.counting import CountingOperations
from bloomredis.stored import header, planning
from tests.simulation.database import Database
from tests.simulation.entries import PlainOperations
from tests.simulation.module import Items

KEY: Final = "f"
ITEMS: Final = 6
MOST_CALLS: Final = 6
"""The most concurrent calls."""

MARKER_BYTES: Final = 16
NAMES: Final = tuple(f"x{item}" for item in range(ITEMS))

Observed = tuple[bytes | None, tuple[int, ...]]
"""The generation of the stored filter, or None without one, and how often each item is in it."""

_NOTHING: Final[Observed] = (None, (0,) * ITEMS)


SECRET: Final = bloomredis.keyed("a secret of the simulation")


@cache
def claim_key(encoded: bytes) -> bytes:
    """Return the key of the claim on an item."""
    return b"{%s}:claim:%s" % (KEY.encode(), hash_bytes(encoded).hex().encode())


@dataclass(frozen=True)
class Kind:
    """A kind of filter.

    :ivar calls: the calls, each with its relative frequency.
    :ivar shared: options of which a run chooses one value for all objects.
    :ivar variants: options of which each object has its own value.
    :ivar observer: returns a function that reads the stored state, given the encoded items.
    """

    name: str
    operations: Callable[..., Any]
    asynchronous: Callable[..., Any]
    observer: Callable[[Sequence[bytes]], Callable[[Database], Observed]]
    calls: dict[str, float]
    options: dict[str, Any]
    shared: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    variants: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    counts: bool = False


class _Observer(ABC):
    """Reads the value of the filter's key again after a change."""

    def __init__(self, items: Sequence[bytes]) -> None:
        self._items = items
        self._value: Any = None
        self._observed = _NOTHING

    def __call__(self, data: Database) -> Observed:
        value = data.find(KEY.encode())
        if value is not self._value:
            self._value = value
            self._observed = _NOTHING if value is None else self._read(value)
        return self._observed

    @abstractmethod
    def _read(self, value: Any) -> Observed:
        """Return the generation and the items of a value."""


class PlainObserver(_Observer):
    """Reads the items in a filter of one bitmap from its bits."""

    def __init__(self, items: Sequence[bytes]) -> None:
        super().__init__(items)
        self._masks: dict[bytes, tuple[int, ...]] = {}  # by the header, which has the parameters

    def _read(self, value: bytes) -> Observed:
        parameters = value[:40]
        if parameters not in self._masks:
            self._masks[parameters] = self._learn(value)
        bits = int.from_bytes(value[64:], "big")
        return value[40:48], tuple([int(bits & mask == mask) for mask in self._masks[parameters]])

    def _learn(self, value: bytes) -> tuple[int, ...]:
        layout = planning.stored(header.parse(value[:64]))
        last = (len(value) - 64) * 8 - 1
        return tuple(sum(1 << last - bit for bit in set(layout.probes(item))) for item in self._items)


class CountingObserver(_Observer):
    """Reads how often each item is in a counting filter from its counters."""

    def __init__(self, items: Sequence[bytes]) -> None:
        super().__init__(items)
        self._places: dict[bytes, tuple[tuple[int, ...], ...]] = {}

    def _read(self, value: bytes) -> Observed:
        parameters = value[:40]
        if parameters not in self._places:
            layout = planning.stored(header.parse(value[:64], header.COUNTING))
            self._places[parameters] = tuple(tuple(sorted(set(layout.probes(item)))) for item in self._items)
        counts = [min([_counter(value, place) for place in places]) for places in self._places[parameters]]
        return value[40:56], tuple(counts)


class ModuleObserver(_Observer):
    """Reads the items in a filter of the server's module; its generation is in its markers."""

    def _read(self, value: Any) -> Observed:
        if not isinstance(value, Items):
            return _NOTHING
        marks = [each for each in value.items.difference(self._items) if len(each) == MARKER_BYTES]
        (generation,) = {mark[7:15] for mark in marks} or [None]
        return generation, tuple([int(item in value.items) for item in self._items])


def _counter(value: bytes, place: int) -> int:
    byte = value[64 + (place >> 1)]
    return byte & 15 if place & 1 else byte >> 4


ADDING: Final = {
    "add": 10.0,
    "add_many": 1.5,
    "contains": 3.0,
    "create": 0.4,
    "update": 0.7,
    "contains_many": 0.7,
    "info": 0.4,
    "expire": 0.1,
    "clear": 0.2,
    "delete": 0.1,
    "acknowledge": 0.2,
}
CLAIMING: Final = {
    "claim": 1.5,
    "claim_as": 1.0,
    "claim_many": 0.4,
    "renew": 0.7,
    "commit": 1.5,
    "commit_many": 0.5,
    "release": 0.6,
    "release_many": 0.2,
    "extend": 0.6,
    "extend_many": 0.2,
    "hand_over": 0.5,
}
REPLACING: Final = ("create", "clear", "delete", "acknowledge")
_VARIANTS: Final = {
    "on_lost": ("raise", "raise", "recreate"),
    "min_replicas": (0, 0, 0, 0, 1, 2),
    "retry_safe": (True, True, True, True, False),
}
_SHARED: Final = {"encode": (None, None, SECRET), "ttl": (None, None, None, 20)}

KINDS: Final = {
    each.name: each
    for each in (
        Kind(
            name="BloomFilter",
            operations=PlainOperations,
            asynchronous=bloomredis.asyncio.BloomFilter,
            observer=PlainObserver,
            calls=ADDING | CLAIMING,
            options={"capacity": 100, "error_rate": 1e-9},
            shared=_SHARED | {"layout": ("blocked", "classic"), "capacity": (100, 100, 4)},
            variants=_VARIANTS | {"local_cache": (False, False, True), "on_full": ("warn", "warn", "raise")},
        ),
        Kind(
            name="CountingBloomFilter",
            operations=CountingOperations,
            asynchronous=bloomredis.asyncio.CountingBloomFilter,
            observer=CountingObserver,
            calls=ADDING | CLAIMING | {"remove": 5.0},
            options={"capacity": 100, "error_rate": 1e-6},
            shared=_SHARED,
            variants=_VARIANTS,
            counts=True,
        ),
        Kind(
            name="module",
            operations=PlainOperations,
            asynchronous=bloomredis.asyncio.BloomFilter,
            observer=ModuleObserver,
            calls=ADDING | CLAIMING,
            options={"capacity": 100, "error_rate": 1e-9, "layout": "module"},
            shared=_SHARED | {"capacity": (100, 4)},
            variants=_VARIANTS | {"on_full": ("warn", "warn", "raise")},
        ),
    )
}
