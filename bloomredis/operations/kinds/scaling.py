"""Operations of a filter that grows by itself."""

from __future__ import annotations

from typing import Unpack

from bloomredis import arguments
from bloomredis.bits import sizing
from bloomredis.operations.kinds.layered import LayeredOperations, whole
from bloomredis.operations.options import Common, Options, Seconds
from bloomredis.protocol.replies import OutcomeMatters
from bloomredis.protocol.steps import Op
from bloomredis.stored.layers.adopting import adopt
from bloomredis.stored.layers.record import ScalingRecord


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
        head, new = whole(capacity, error_rate, layout, ScalingRecord.kind), None
        if head is None:
            arguments.read_from_server(expansion=expansion != 2, tightening_ratio=tightening_ratio != 0.5)
        else:
            growth = sizing.positive("expansion", arguments.bounded("expansion", expansion))
            ratio = arguments.share("tightening_ratio", tightening_ratio)
            new = ScalingRecord(head=head, expansion=growth, tightening_ratio=ratio)
        super().__init__(name, Options(**common), new=new, layout=layout, ttl=ttl)


def adoption(name: str, expansion: int, tightening_ratio: float, encoded: int | None) -> Op[None]:
    """Turn a `BloomFilter` into the first layer of a filter that grows."""
    growth = sizing.positive("expansion", arguments.bounded("expansion", expansion))
    ratio = arguments.share("tightening_ratio", tightening_ratio)
    with OutcomeMatters(
        name,
        "check the outcome: ScalingBloomFilter.open() succeeds if it was adopted",
        "bloomredis info shows --kind scaling if it was adopted",
    ):
        yield from adopt(name, encoded, growth, ratio)
