"""Operations of a filter that forgets items after a time."""

from __future__ import annotations

from typing import Final, Unpack

from bloomredis import arguments
from bloomredis.bits import sizing
from bloomredis.operations.kinds.layered import LayeredOperations
from bloomredis.operations.options import Common, Seconds, checked_options
from bloomredis.stored import planning
from bloomredis.stored.layers.record import MAX_SLICES, MOST_WIDTH, RotatingRecord, new_record

_LEAST_WIDTH: Final = 100_000  # microseconds


class RotatingOperations(LayeredOperations):
    """The operations of `RotatingBloomFilter`."""

    record_class = RotatingRecord

    def __init__(
        self,
        name: str,
        *,
        capacity: int | None = None,
        error_rate: float | None = None,
        window: Seconds | None = None,
        slices: int = 4,
        layout: str | None = None,
        **common: Unpack[Common],
    ) -> None:
        sizes, new = planning.checked_sizes(capacity, error_rate, layout), None
        if sizes is None:
            arguments.read_from_server(window=window is not None, slices=slices != 4)
        else:
            new = new_record(RotatingRecord, *sizes, layout, **_cut(window, slices))
        super().__init__(name, checked_options(common), new=new, layout=layout)


def _cut(window: Seconds | None, slices: int) -> dict[str, int]:
    """Return width and number of the slices; raise `ValueError` for a slice that is too short or too long."""
    if window is None:
        raise TypeError("window is missing: the seconds (or a timedelta) for which an item is found")
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
    return {"width": width, "slices": cut}
