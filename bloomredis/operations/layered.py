"""What filters in a stack of layers do: one that grows, and one that forgets."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, NoReturn, Self

from bloomredis import arguments
from bloomredis.arguments import OnLost
from bloomredis.bits.encoding import Item
from bloomredis.operations import info
from bloomredis.operations.filter import FilterOperations
from bloomredis.operations.info import FilterInfo
from bloomredis.operations.pipelines import AnyPipeline
from bloomredis.protocol.calls import Wait
from bloomredis.protocol.steps import Op
from bloomredis.stored.base import Handle
from bloomredis.stored.layer_record import LayerRecord
from bloomredis.stored.layers import StoredLayers


class LayeredOperations(FilterOperations):
    """What filters in a stack of layers have in common."""

    _stored: StoredLayers
    _made: ClassVar[type[LayerRecord]]

    @classmethod
    def from_server(cls, name: str) -> Self:
        operations = cls.__new__(cls)
        FilterOperations._assemble(operations, _stack(name, cls._made))  # noqa: SLF001 - its own
        return operations

    def queue_add(self, handle: Handle, pipe: AnyPipeline, item: Item) -> NoReturn:  # noqa: ARG002 - refused
        raise TypeError(
            f"{self.name!r} may get another layer before the pipeline is executed, "
            "and a queued call cannot follow it; use add_many"
        )

    def queue_contains(self, handle: Handle, pipe: AnyPipeline, item: Item) -> NoReturn:
        self.queue_add(handle, pipe, item)

    def info(self) -> Op[FilterInfo]:
        layers = yield from self._layers()
        return info.stacked(self.name, self._stored.record, layers)


def _stack(
    name: str,
    made: type[LayerRecord],
    *,
    new: LayerRecord | None = None,
    layout: str | None = None,
    ttl: float | timedelta | None = None,
    on_lost: OnLost = "raise",
    wait: Wait | None = None,
) -> StoredLayers:
    """Return what is under the key, nothing being known of it yet; `ValueError` for what makes no sense."""
    return StoredLayers(
        arguments.name(name),
        made=made,
        new=None if new is None else new.complete(),
        layout=layout,
        ttl=0 if ttl is None else arguments.milliseconds("ttl", ttl),
        on_lost=on_lost if new is None else arguments.on_lost(on_lost, can_create=True),
        wait=wait,
    )
