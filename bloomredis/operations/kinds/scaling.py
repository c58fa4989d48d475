"""Operations of a filter that grows by itself."""

from __future__ import annotations

from typing import Unpack

from bloomredis import arguments
from bloomredis.bits import sizing
from bloomredis.operations.kinds.layered import LayeredOperations
from bloomredis.operations.options import Common, Seconds, checked_options
from bloomredis.protocol.replies import OutcomeMatters
from bloomredis.protocol.steps import Op
from bloomredis.stored import planning
from bloomredis.stored.layers.adopting import adopt
from bloomredis.stored.layers.record import ScalingRecord, new_record


class ScalingOperations(LayeredOperations):
    """The operations of `ScalingBloomFilter`."""

    record_class = ScalingRecord

    def __init__(
        self,
        name: str,
        *,
        capacity: int | None = None,
        error_rate: float | None = None,
        expansion: int = 2,
        tightening_ratio: float = 0.5,
        layout: str | None = None,
        ttl: Seconds | None = None,
        **common: Unpack[Common],
    ) -> None:
        sizes, new = planning.checked_sizes(capacity, error_rate, layout), None
        if sizes is None:
            arguments.read_from_server(expansion=expansion != 2, tightening_ratio=tightening_ratio != 0.5)
        else:
            growth = sizing.positive("expansion", expansion)
            ratio = arguments.share("tightening_ratio", tightening_ratio)
            new = new_record(ScalingRecord, *sizes, layout, expansion=growth, tightening_ratio=ratio)
        super().__init__(name, checked_options(common), new=new, layout=layout, ttl=ttl)


def adoption(name: str, expansion: int, tightening_ratio: float, encoded: int | None) -> Op[None]:
    """Turn a `BloomFilter` into the first layer of a filter that grows."""
    growth = sizing.positive("expansion", expansion)
    ratio = arguments.share("tightening_ratio", tightening_ratio)
    with OutcomeMatters(
        name,
        "check the outcome: ScalingBloomFilter.open() succeeds if it was adopted",
        "bloomredis info shows --kind scaling if it was adopted",
    ):
        yield from adopt(name, encoded, growth, ratio)
