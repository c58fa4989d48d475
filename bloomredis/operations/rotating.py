"""A filter that forgets."""

from __future__ import annotations

from typing import Any, Unpack

from bloomredis import arguments
from bloomredis.bits import sizing
from bloomredis.operations.layered import LayeredOperations
from bloomredis.operations.options import CommonParameters, Options, Seconds
from bloomredis.stored import planning
from bloomredis.stored.layer_record import MAX_SLICES, RotatingRecord


class RotatingOperations(LayeredOperations):
    """The verbs of `RotatingBloomFilter`."""

    record_class = RotatingRecord

    def __init__(
        self,
        name: str,
        *,
        capacity: int,
        error_rate: float,
        window: Seconds,
        slices: int = 4,
        layout: str | None = None,
        **common: Unpack[CommonParameters[Any]],
    ) -> None:
        cut = sizing.positive("slices", slices, MAX_SLICES)
        new = RotatingRecord(
            head=planning.whole(
                arguments.bounded("capacity", capacity), error_rate, layout, RotatingRecord.kind
            ),
            width=-(-1000 * arguments.milliseconds("window", window) // cut),
            slices=cut,
        )
        super().__init__(name, Options(**common), new=new, layout=layout)
