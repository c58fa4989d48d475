"""The record of a filter in layers: the layers that it has, and the next one (lua/FORMAT.md).

A *scaling* filter gets a larger and stricter layer when the newest is full: layer j has capacity n·s^j and
error rate p·(1 - r)·r^j, with expansion s and tightening ratio r, so that the sum of all rates stays below p
(Almeida and others, "Scalable Bloom filters", 2007).
A *rotating* filter gets a layer for each slice of time in which something is added, and another when that
one is full; a layer is forgotten when its slice has been over for a window.
"""

from __future__ import annotations

import math
import os
import struct
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Final, Self

from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.bits.sizing import FINEST, MAX_BITS
from bloomredis.errors import FilterFullError
from bloomredis.stored import header, planning
from bloomredis.stored.header import KINDS, Header

PARAMETERS_BYTES: Final = 48
"""Of a layer's header: all that does not depend on when it was begun."""

MAX_LAYERS: Final = 255
MAX_SLICES: Final = 64
LEAST_WIDTH: Final = 10_000
"""Microseconds that a slice has at least: in shorter ones no call would come to its end."""
_TIME: Final = struct.Struct(">Q")
_NEGLIGIBLE: Final = 2.0**-15  # share of a rate, so small that all layers together have no 1% of it
_FINEST: Final = 1e-11  # rate that a classic layer keeps, however low the whole filter's is
_SAMPLE: Final = 1_000_000  # items; from there on the bits an item takes hardly depend on the capacity


@dataclass(frozen=True, kw_only=True)
class LayerRecord:
    """Parameters and layers of a filter.

    `head` is the header of the filter as a whole, `newest` the number of the newest layer, and `began` the
    times at which the layers were begun, the oldest first, by the server's clock in microseconds.
    """

    kind: ClassVar[int]
    shared: ClassVar[bool]  # all layers have the same parameters
    own: ClassVar[tuple[str, str]]  # the fields that only this kind has
    tail: ClassVar[struct.Struct]  # these, and the number of the newest layer

    head: Header
    newest: int = 0
    began: tuple[int, ...] = ()

    @property
    def parameters(self) -> dict[str, object]:
        """The parameters that the caller gave, which have to be those that are stored."""
        return {"capacity": self.head.capacity, "error_rate": self.head.error_rate}

    @abstractmethod
    def check(self) -> None:
        """Raise `ValueError` for impossible values of this kind's own fields."""

    @abstractmethod
    def planned(self, number: int) -> Header:
        """Return the header of a layer.  Raises `FilterFullError` if there can be none with that number."""

    def pack(self) -> bytes:
        """Return the bytes that are stored."""
        return self.template() + b"".join(map(_TIME.pack, self.began))

    def template(self) -> bytes:
        """Return the same without the times."""
        own = (getattr(self, name) for name in self.own)
        return self.head.pack() + self.tail.pack(*own, self.newest)

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Return a record of this kind.  Raises `ValueError`, which names the fault, for other bytes."""
        head = header.parse(data[:HEADER_BYTES], cls.kind)
        times = len(data) - HEADER_BYTES - cls.tail.size
        if times < 0 or times % _TIME.size:
            raise ValueError(f"it is {len(data)} bytes long, which no number of layers takes")
        *own, newest = cls.tail.unpack_from(data, HEADER_BYTES)
        began = tuple(time for (time,) in _TIME.iter_unpack(data[-times:])) if times else ()
        if not 0 < len(began) <= newest + 1:
            raise ValueError(f"it has {len(began)} layers, of which the newest is number {newest}")
        if not cls.shared and newest >= MAX_LAYERS:
            raise ValueError(f"it has a layer with number {newest}, and {MAX_LAYERS} are the most possible")
        fields: dict[str, Any] = dict(zip(cls.own, own, strict=True))
        record = cls(head=head, newest=newest, began=began, **fields)
        record.check()
        if record.complete().head.num_bits != head.num_bits:
            raise ValueError(f"its first layer has {head.num_bits} bits, and is not made for its capacity")
        return record

    @property
    def numbers(self) -> range:
        """The numbers of the layers, the newest first."""
        return range(self.newest, self.newest - len(self.began), -1)

    def layers(self) -> list[Header]:
        """Return the headers of the layers, the newest first."""
        return [self.layer(number) for number in self.numbers]

    def layer(self, number: int) -> Header:
        """Return the header of the layer with that number, in this generation."""
        return replace(self.planned(number), generation=self.head.generation)

    def complete(self) -> Self:
        """Return the record of a new filter, whose header has the size of the first layer."""
        whole = self.head
        try:
            first = self.planned(0)
        except FilterFullError as error:
            raise ValueError(f"there is no first layer: {error}") from None
        return replace(
            self,
            head=replace(
                first, capacity=whole.capacity, error_rate=whole.error_rate, kind=self.kind, rules=whole.rules
            ),
        )

    def following(self) -> Self:
        """Return the record with another layer.  Raises `FilterFullError` if there can be none."""
        self.planned(self.newest + 1)
        return replace(self, newest=self.newest + 1)

    def renewed(self) -> Self:
        """Return the record of an empty filter with the same parameters and another generation."""
        return replace(self, head=replace(self.head, generation=os.urandom(8)), newest=0, began=())

    def encoded(self, encoding: int) -> Self:
        """Return the record of a filter whose items are encoded so."""
        return replace(self, head=replace(self.head, encoding=encoding))

    def forgetting(self, left: int) -> Self:
        """Return the record with so many layers, the newest."""
        return replace(self, began=self.began[-left:])

    def continues(self, known: Self) -> bool:
        """True if this is what the known record may have become: layers were begun since, none is another."""
        began, before = (dict(zip(each.numbers, reversed(each.began), strict=True)) for each in (self, known))
        return (
            self.head.generation == known.head.generation
            and self.newest >= known.newest
            and all(began[number] == before[number] for number in began.keys() & before.keys())
        )

    def ended_before(self, other: Self) -> bool:  # noqa: ARG002 - of most kinds none ends
        """True if all that was in this filter had been forgotten when the other one was begun."""
        return False

    @property
    def grace(self) -> int:
        """Milliseconds by which keys outlive the end of what they hold."""
        return 0


@dataclass(frozen=True, kw_only=True)
class ScalingRecord(LayerRecord):
    """The record of a filter that grows."""

    kind = KINDS.index("ScalingBloomFilter")
    shared = False
    own = ("tightening_ratio", "expansion")
    tail = struct.Struct(">dQQ")

    expansion: int
    tightening_ratio: float

    @property
    def parameters(self) -> dict[str, object]:
        """The parameters that the caller gave."""
        own = {"expansion": self.expansion, "tightening_ratio": self.tightening_ratio}
        return super().parameters | own

    def check(self) -> None:
        """Raise `ValueError` for an impossible growth."""
        if not 0 < self.tightening_ratio < 1 or self.expansion < 1:
            raise ValueError(
                f"it has tightening_ratio {self.tightening_ratio} and expansion {self.expansion}"
            )

    def planned(self, number: int) -> Header:
        """Return the header of the layer with that number: larger and stricter than the one before."""
        head = self.head
        rate = head.error_rate * (1 - self.tightening_ratio)
        if number == 0 and head.rules == header.ADOPTED:
            return replace(head.parameters, kind=header.FILTER, rules=0, error_rate=rate)
        for _ in range(number):  # not a power, whose last bit differs from one machine to another
            rate *= self.tightening_ratio
        return _planned(head.capacity * self.expansion**number, rate, head)


@dataclass(frozen=True, kw_only=True)
class RotatingRecord(LayerRecord):
    """The record of a filter that forgets."""

    kind = KINDS.index("RotatingBloomFilter")
    shared = True
    own = ("width", "slices")
    tail = struct.Struct(">QQQ")

    width: int  # of a slice, in microseconds
    slices: int

    @property
    def parameters(self) -> dict[str, object]:
        """The parameters that the caller gave."""
        return super().parameters | {"window": self.width * self.slices / 1e6, "slices": self.slices}

    def check(self) -> None:
        """Raise `ValueError` for impossible slices."""
        if not LEAST_WIDTH <= self.width < 2**52 or not 0 < self.slices <= MAX_SLICES:
            raise ValueError(f"it has {self.slices} slices of {self.width} microseconds")

    def ended_before(self, other: Self) -> bool:
        """True if all that was in this filter had been forgotten when the other one was begun."""
        return max(self.began) // self.width + self.slices < min(other.began) // self.width

    def end(self, began: int) -> int:
        """Return the time at which a layer that was begun then has ended, by the same clock."""
        return (began // self.width + self.slices + 1) * self.width

    @property
    def grace(self) -> int:
        """Milliseconds by which keys outlive the end of what they hold."""
        return min(60_000, -(-self.width * self.slices // 1000))

    def planned(self, number: int) -> Header:  # noqa: ARG002 - they are all alike
        """Return the header of a layer.

        A layer takes the share of a slice, and there may be several in a slice.  What can be found is what
        was added in a window and a slice, so at most two windows' items, twice `slices` full layers; the
        rates of layers that are less full add up to less, since a rate grows faster than its layer fills.
        """
        head = self.head
        return _planned(-(-head.capacity // self.slices), head.error_rate / (2 * self.slices), head)


def _planned(capacity: int, error_rate: float, whole: Header) -> Header:
    """Return the header of a layer without its generation, for no more items than fit one key."""
    made = _made(capacity, error_rate, whole.layout, whole.error_rate, whole.rules)
    return replace(made, encoding=whole.encoding) if whole.encoding else made


@lru_cache
def _made(capacity: int, error_rate: float, layout: str, whole_rate: float, rules: int) -> Header:
    finest = min(FINEST, max(_FINEST, whole_rate * _NEGLIGIBLE)) if rules else None
    try:
        sample = planning.new_header(
            _SAMPLE, _share(_SAMPLE, rules) * error_rate, layout, finest=None, small_blocks=False
        )
        items = min(capacity, int(MAX_BITS * 0.99 * _SAMPLE / sample.num_bits))
        planned = planning.new_header(
            items, _share(items, rules) * error_rate, layout, finest=finest, small_blocks=False
        )
    except ValueError as error:
        raise FilterFullError(f"it can have no other layer: {error}, or make it larger") from None
    return replace(planned, error_rate=error_rate)


def _share(items: int, rules: int) -> float:
    """Return the share of its rate that a layer is made for.

    The rate of one filter lies above or below the expected one by chance, by some 1/sqrt(n) of it in the
    classic layout and up to 5.5/sqrt(n) in the blocked one (measured: tests/bits/test_rates.py), so
    that large layers need less room for it.  Sizes are rounded to 1% of the rate, those of small layers,
    whose share is 0.9, to 5%.
    """
    return max(0.9, 0.985 - 3 / math.sqrt(items)) if rules else 0.9
