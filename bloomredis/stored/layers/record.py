"""The record of a filter in layers: its layers and the parameters of the next one (lua/FORMAT.md).

A *scaling* filter gets a larger and stricter layer when the newest is full.  Layer j has capacity n·s^j and
error rate p·(1 - r)·r^j, with expansion s and tightening ratio r, so that the sum of all rates stays below p
(Almeida and others, "Scalable Bloom filters", 2007).
A *rotating* filter gets a layer for each slice of time in which an item is added, and another layer when that
layer is full.  A layer is forgotten one window after the end of its slice.
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
"""The length of the part of a layer's header that does not depend on the time at which the layer began."""

MAX_LAYERS: Final = 255
MAX_SLICES: Final = 64
LEAST_WIDTH: Final = 10_000
"""The shortest slice in microseconds: no call would finish within a shorter one."""
MOST_WIDTH: Final = 2**52 - 1
"""The longest slice in microseconds, so that the scripts compute times exactly: 142 years."""
_TIME: Final = struct.Struct(">Q")
_NEGLIGIBLE: Final = 2.0**-15  # a share of the rate; such shares of all layers add up to less than 1% of it
_FINEST: Final = 1e-11  # the lowest rate of a classic layer, however low the whole filter's rate is
_SAMPLE: Final = 1_000_000  # items; above that, the bits an item takes hardly depend on the capacity


@dataclass(frozen=True, kw_only=True)
class LayerRecord:
    """The parameters and layers of a filter.

    :ivar head: the header of the filter as a whole.
    :ivar newest: the number of the newest layer.
    :ivar began: the times at which the layers began, the oldest first, by the server's clock in microseconds.
    """

    kind: ClassVar[int]
    shared: ClassVar[bool]  # all layers have the same parameters
    own: ClassVar[tuple[str, str]]  # the fields that only this kind has
    tail: ClassVar[struct.Struct]  # the format of these fields and `newest`

    head: Header
    newest: int = 0
    began: tuple[int, ...] = ()

    @property
    def parameters(self) -> dict[str, object]:
        """The parameters that a caller gives, which must equal the stored ones."""
        return {"capacity": self.head.capacity, "error_rate": self.head.error_rate, **self.own_parameters}

    @property
    @abstractmethod
    def own_parameters(self) -> dict[str, Any]:
        """The parameters that only this kind has."""

    @abstractmethod
    def check(self) -> None:
        """Raise `ValueError` for impossible values of this kind's own fields."""

    @abstractmethod
    def planned(self, number: int) -> Header:
        """Return the header of a layer; raise `FilterFullError` if no layer can have this number."""

    def pack(self) -> bytes:
        """Return the stored bytes."""
        return self.template() + b"".join(map(_TIME.pack, self.began))

    def template(self) -> bytes:
        """Return the stored bytes without the times."""
        own = (getattr(self, name) for name in self.own)
        return self.head.pack() + self.tail.pack(*own, self.newest)

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Return a record of this kind; raise `ValueError`, which names the fault, for other bytes."""
        head = header.parse(data[:HEADER_BYTES], cls.kind)
        times = len(data) - HEADER_BYTES - cls.tail.size
        if times < 0 or times % _TIME.size:
            raise ValueError(f"it is {len(data)} bytes long, which fits no number of layers")
        *own, newest = cls.tail.unpack_from(data, HEADER_BYTES)
        began = tuple(time for (time,) in _TIME.iter_unpack(data[-times:])) if times else ()
        if not 0 < len(began) <= newest + 1:
            raise ValueError(f"it has {len(began)} layers, of which the newest is number {newest}")
        if not cls.shared and newest >= MAX_LAYERS:
            raise ValueError(f"it has a layer with number {newest}; at most {MAX_LAYERS} layers are possible")
        fields: dict[str, Any] = dict(zip(cls.own, own, strict=True))
        record = cls(head=head, newest=newest, began=began, **fields)
        record.check()
        if record.complete().head.num_bits != head.num_bits:
            raise ValueError(f"its first layer has {head.num_bits} bits, which do not fit its capacity")
        return record

    def succeeds(self, known: Self | None) -> bool:
        """Return whether this filter was made after all layers of a lost one, and its loss was acknowledged.

        A filter that was restored has a time of creation, later than its layers.
        """
        made = self.head.created_at or min(self.began)
        return self.head.is_acknowledged and (
            known is None or made > max(known.head.created_at, *known.began)
        )

    @property
    def numbers(self) -> range:
        """The numbers of the layers, the newest first."""
        return range(self.newest, self.newest - len(self.began), -1)

    def layers(self) -> list[Header]:
        """Return the headers of the layers, the newest first."""
        return [self.layer(number) for number in self.numbers]

    def layer(self, number: int) -> Header:
        """Return the header of the layer with this number, in this generation."""
        return replace(self.planned(number), generation=self.head.generation)

    def complete(self) -> Self:
        """Return the record with the size of the first layer in its header."""
        whole = self.head
        try:
            first = self.planned(0)
        except FilterFullError as error:
            raise ValueError(f"it cannot have a first layer: {error}") from None
        return replace(
            self,
            head=replace(
                first, capacity=whole.capacity, error_rate=whole.error_rate, kind=self.kind, rules=whole.rules
            ),
        )

    def following(self) -> Self:
        """Return the record with another layer; raise `FilterFullError` if none is possible."""
        self.planned(self.newest + 1)
        return replace(self, newest=self.newest + 1)

    def renewed(self) -> Self:
        """Return the record of an empty filter with the same parameters and a new generation."""
        head = self.head.as_new(os.urandom(8), created_at=0)
        return replace(self, head=head, newest=0, began=())

    def encoded(self, encoding: int) -> Self:
        """Return the record with this number of an encoding."""
        return replace(self, head=replace(self.head, encoding=encoding))

    def forgetting(self, left: int) -> Self:
        """Return the record with only the `left` newest layers."""
        return replace(self, began=self.began[-left:])

    def continues(self, known: Self) -> bool:
        """Return True if the known record can have become this one: only layers began or ended since."""
        began, before = (dict(zip(each.numbers, reversed(each.began), strict=True)) for each in (self, known))
        return (
            self.head.generation == known.head.generation
            and self.newest >= known.newest
            and all(began[number] == before[number] for number in began.keys() & before.keys())
        )

    def ended_before(self, other: Self) -> bool:
        """Return True if all layers of this filter had ended when the other filter began."""
        return False

    @property
    def grace(self) -> int:
        """The milliseconds by which a key outlives its layer."""
        return 0


@dataclass(frozen=True, kw_only=True)
class ScalingRecord(LayerRecord):
    """The record of a growing filter."""

    kind = KINDS.index("ScalingBloomFilter")
    shared = False
    own = ("tightening_ratio", "expansion")
    tail = struct.Struct(">dQQ")

    expansion: int
    tightening_ratio: float

    @property
    def own_parameters(self) -> dict[str, Any]:
        """Expansion and tightening ratio."""
        return {"expansion": self.expansion, "tightening_ratio": self.tightening_ratio}

    def check(self) -> None:
        """Raise `ValueError` for an impossible growth."""
        if not 0 < self.tightening_ratio < 1 or self.expansion < 1:
            raise ValueError(
                f"it has tightening_ratio {self.tightening_ratio} and expansion {self.expansion}"
            )

    def planned(self, number: int) -> Header:
        """Return the header of the layer with this number: larger and stricter than the layer before."""
        head = self.head
        rate = head.error_rate * (1 - self.tightening_ratio)
        if number == 0 and head.rules == header.ADOPTED:
            return replace(head.parameters, kind=header.FILTER, rules=0, error_rate=rate)
        for _ in range(number):  # the last bit of a power would differ between machines
            rate *= self.tightening_ratio
        return _planned(head.capacity * self.expansion**number, rate, head)


@dataclass(frozen=True, kw_only=True)
class RotatingRecord(LayerRecord):
    """The record of a rotating filter."""

    kind = KINDS.index("RotatingBloomFilter")
    shared = True
    own = ("width", "slices")
    tail = struct.Struct(">QQQ")

    width: int  # the length of a slice in microseconds
    slices: int

    @property
    def own_parameters(self) -> dict[str, Any]:
        """Window and slices."""
        return {"window": self.width * self.slices / 1e6, "slices": self.slices}

    def check(self) -> None:
        """Raise `ValueError` for impossible slices."""
        if not LEAST_WIDTH <= self.width <= MOST_WIDTH or not 0 < self.slices <= MAX_SLICES:
            raise ValueError(f"it has {self.slices} slices of {self.width} microseconds")

    def ended_before(self, other: Self) -> bool:
        """Return True if all layers of this filter had ended when the other filter began."""
        return max(self.began) // self.width + self.slices < min(other.began) // self.width

    def end(self, began: int) -> int:
        """Return the time at which a layer ends that began at the time `began`, by the same clock."""
        return (began // self.width + self.slices + 1) * self.width

    @property
    def grace(self) -> int:
        """The milliseconds by which a key outlives its layer."""
        return min(60_000, -(-self.width * self.slices // 1000))

    def planned(self, number: int) -> Header:
        """Return the header of a layer.

        A layer has the capacity of one slice's share; a slice may have several layers.  The filter holds the
        items of a window and a slice, so at most the items of two windows: twice `slices` full layers.  The
        rates of layers that are less full add up to less, since a rate grows faster than its layer fills.
        """
        head = self.head
        return _planned(-(-head.capacity // self.slices), head.error_rate / (2 * self.slices), head)


@lru_cache
def new_record(
    kind: type[LayerRecord], capacity: int, error_rate: float, layout: str | None, **own: Any
) -> LayerRecord:
    """Return the record of a new filter; raise `ValueError` if one key cannot hold its first layer."""
    return kind(head=planning.whole(capacity, error_rate, layout, kind.kind), **own).complete()


def _planned(capacity: int, error_rate: float, whole: Header) -> Header:
    """Return the header of a layer without its generation, for at most the items that fit one key."""
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
        raise FilterFullError(
            f"the filter cannot have another layer: {error}",
            advice="load the items into a new filter with a larger capacity",
            command="create a filter with a larger --capacity, and add the items again",
        ) from None
    return replace(planned, error_rate=error_rate)


def _share(items: int, rules: int) -> float:
    """Return the share of its error rate that a layer is sized for.

    By chance, the rate of a filter deviates from the expected rate by some 1/sqrt(n) of it in the classic
    layout and up to 5.5/sqrt(n) in the blocked layout (measured: tests/bits/test_rates.py).  So large layers
    need less margin.  Sizes are rounded to 1% of the rate, and to 5% for small layers, whose share is 0.9.
    """
    return max(0.9, 0.985 - 3 / math.sqrt(items)) if rules else 0.9
