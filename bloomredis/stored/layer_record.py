"""What the root of a stack says: which layers there are, and what the next one will be (lua/FORMAT.md).

A stack is a filter of several layers.  A *scaling* one gets a larger and stricter layer when the newest is
full: layer j has capacity n·s^j and error rate p·(1 - r)·r^j, with expansion s and tightening ratio r, so
that the sum of all rates stays below p (Almeida and others, "Scalable Bloom filters", 2007).
A *rotating* one gets a layer for each slice of time in which something is added, and another when that one
is full; what a layer holds is forgotten when the slice has been over for a window.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Final, Self

from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.bits.sizing import MAX_BITS
from bloomredis.errors import FilterFullError
from bloomredis.stored import header, planning
from bloomredis.stored.header import KINDS, Header

PARAMETERS_BYTES: Final = 48
"""Of a layer's header: what does not depend on when it was begun."""

MAX_LAYERS: Final = 255
MAX_SLICES: Final = 64
_TAIL: Final = struct.Struct(">8sQQ")
_TIME: Final = struct.Struct(">Q")
_RATE: Final = struct.Struct(">d")
_MARGIN: Final = 0.9
"""Share of its rate that a layer is made for: the sum over all layers comes so near to the configured rate
that chance would carry every third filter above it."""

_SAMPLE: Final = 1_000_000  # items; from there on the bits an item takes hardly depend on the capacity


@dataclass(frozen=True, kw_only=True)
class LayerRecord:
    """What a stack was made with, and the layers that it has.

    `head` is the header of the filter as a whole, `newest` the number of the newest layer, and `begun` says
    when the layers were begun, the oldest first, by the server's clock in microseconds.
    """

    kind: ClassVar[int]
    shared: ClassVar[bool]  # whether all layers are alike

    head: Header
    newest: int = 0
    began: tuple[int, ...] = ()

    @property
    def parameters(self) -> dict[str, object]:
        """The parameters that the caller gave, which have to be those that are stored."""
        return {"capacity": self.head.capacity, "error_rate": self.head.error_rate}

    @abstractmethod
    def _numbers(self) -> tuple[bytes, int]:
        """Return the two fields of the root that only this kind has."""

    @classmethod
    @abstractmethod
    def _read(cls, first: bytes, second: int) -> dict[str, Any]:
        """Return what only this kind has, from those fields."""

    @abstractmethod
    def planned(self, number: int) -> Header:
        """Return the header of the layer with that number; `FilterFullError` if there can be none."""

    def pack(self) -> bytes:
        """Return the bytes that are stored."""
        return self.template() + b"".join(map(_TIME.pack, self.began))

    def template(self) -> bytes:
        """Return the same without the times."""
        return self.head.pack() + _TAIL.pack(*self._numbers(), self.newest)

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read a root; `ValueError` says what is wrong with another key."""
        head = header.parse(data[:HEADER_BYTES], cls.kind)
        first, second, newest = _TAIL.unpack_from(data, HEADER_BYTES)
        began = tuple(time for (time,) in _TIME.iter_unpack(data[HEADER_BYTES + _TAIL.size :]))
        if not 0 < len(began) <= newest + 1:
            raise ValueError(f"it has {len(began)} layers, of which the newest is number {newest}")
        return cls(head=head, newest=newest, began=began, **cls._read(first, second))

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
        """Return the root of a new stack, whose header says how large the first layer is."""
        whole = self.head
        try:
            first = self.planned(0)
        except FilterFullError as error:
            raise ValueError(f"there is no first layer: {error}") from None
        return replace(
            self,
            head=replace(first, capacity=whole.capacity, error_rate=whole.error_rate, kind=self.kind),
        )

    def following(self) -> Self:
        """Return the root with another layer; `FilterFullError` if there can be none."""
        if len(self.began) >= MAX_LAYERS:
            raise FilterFullError(
                f"it has {MAX_LAYERS} layers, which are the most possible; make it for a larger capacity"
            )
        self.planned(self.newest + 1)
        return replace(self, newest=self.newest + 1)


@dataclass(frozen=True, kw_only=True)
class ScalingRecord(LayerRecord):
    """The root of a stack that grows."""

    kind = KINDS.index("ScalingBloomFilter")
    shared = False

    expansion: int
    tightening_ratio: float

    @property
    def parameters(self) -> dict[str, object]:
        """What has to be as it is stored."""
        own = {"expansion": self.expansion, "tightening_ratio": self.tightening_ratio}
        return super().parameters | own

    def _numbers(self) -> tuple[bytes, int]:
        return _RATE.pack(self.tightening_ratio), self.expansion

    @classmethod
    def _read(cls, first: bytes, second: int) -> dict[str, Any]:
        (ratio,) = _RATE.unpack(first)
        if not 0 < ratio < 1 or second < 1:
            raise ValueError(f"it has tightening_ratio {ratio} and expansion {second}")
        return {"expansion": second, "tightening_ratio": ratio}

    def planned(self, number: int) -> Header:
        """Return the header of the layer with that number: larger and stricter than the one before."""
        head = self.head
        rate = head.error_rate * (1 - self.tightening_ratio)
        for _ in range(number):  # not a power, whose last bit differs from one machine to another
            rate *= self.tightening_ratio
        return _planned(head.layout, head.capacity * self.expansion**number, rate)


@dataclass(frozen=True, kw_only=True)
class RotatingRecord(LayerRecord):
    """The root of a stack that forgets."""

    kind = KINDS.index("RotatingBloomFilter")
    shared = True

    width: int
    """How long a slice lasts, in microseconds."""
    slices: int

    @property
    def parameters(self) -> dict[str, object]:
        """What has to be as it is stored."""
        return super().parameters | {"window": self.width * self.slices / 1e6, "slices": self.slices}

    def _numbers(self) -> tuple[bytes, int]:
        return _TIME.pack(self.width), self.slices

    @classmethod
    def _read(cls, first: bytes, second: int) -> dict[str, Any]:
        (width,) = _TIME.unpack(first)
        if not 0 < width < 2**52 or not 0 < second <= MAX_SLICES:
            raise ValueError(f"it has {second} slices of {width} microseconds")
        return {"width": width, "slices": second}

    def planned(self, number: int) -> Header:  # noqa: ARG002 - they are all alike
        """Return the header of a layer.

        A layer takes the share of a slice, and there may be several in a slice.  What can be found is what
        was added in a window and a slice, so at most two windows' items, twice `slices` full layers; the
        rates of layers that are less full add up to less, since a rate grows faster than its layer fills.
        """
        head = self.head
        return _planned(head.layout, -(-head.capacity // self.slices), head.error_rate / (2 * self.slices))


@lru_cache
def _planned(layout: str, capacity: int, error_rate: float) -> Header:
    """Return the header of a layer, for no more items than fit one key; its generation is missing."""
    try:
        sample = planning.new_header(_SAMPLE, _MARGIN * error_rate, layout)
        most = int(MAX_BITS * 0.99 * _SAMPLE / sample.num_bits)
        planned = planning.new_header(min(capacity, most), _MARGIN * error_rate, layout)
    except ValueError as error:
        raise FilterFullError(f"it can have no other layer: {error}, or make it larger") from None
    return replace(planned, error_rate=error_rate)
