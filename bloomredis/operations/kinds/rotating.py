"""Operations of a filter that forgets items after a time."""

from __future__ import annotations

from typing import Final, Unpack

from bloomredis import arguments
from bloomredis.bits import sizing
from bloomredis.operations.kinds.layered import LayeredOperations
from bloomredis.operations.options import Common, Options, Seconds
from bloomredis.stored import planning
from bloomredis.stored.layers.record import MAX_SLICES, MOST_WIDTH, RotatingRecord

_LEAST_WIDTH: Final = 100_000  # microseconds


class RotatingOperations(LayeredOperations):
    """The operations of `RotatingBloomFilter`."""

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
        **common: Unpack[Common],
    ) -> None:
        cut = sizing.positive("slices", slices, MAX_SLICES)
        width = -(-1000 * arguments.milliseconds("window", window) // cut)
        if width < _LEAST_WIDTH:
            raise ValueError(
                f"a slice of the window has {width / 1000:g} ms, and needs {_LEAST_WIDTH // 1000} to outlast "
                "a call: give a longer window or fewer slices"
            )
        if width > MOST_WIDTH:
            raise ValueError(
                f"a slice of the window has {width // 10**6} seconds, and may have {MOST_WIDTH // 10**6}: "
                "give a shorter window or more slices"
            )
        new = RotatingRecord(
            head=planning.whole(
                arguments.bounded("capacity", capacity), error_rate, layout, RotatingRecord.kind
            ),
            width=width,
            slices=cut,
        )
        super().__init__(name, Options(**common), new=new, layout=layout)
