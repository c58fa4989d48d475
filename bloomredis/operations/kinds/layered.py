"""Operations that scaling and rotating filters share."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bloomredis import arguments
from bloomredis.later import later
from bloomredis.operations.kinds.filter import FilterOperations
from bloomredis.operations.options import Options, Seconds
from bloomredis.protocol.steps import Op
from bloomredis.stored.layers.layers import StoredLayers
from bloomredis.stored.layers.record import LayerRecord
from bloomredis.stored.state.knowledge import untold

if TYPE_CHECKING:
    from bloomredis.operations.whole import info
    from bloomredis.operations.whole.info import FilterInfo
else:
    info = later("bloomredis.operations.whole", "info")


class LayeredOperations(FilterOperations):
    """The operations of a filter in several layers."""

    stored: StoredLayers
    record_class: ClassVar[type[LayerRecord]]

    def __init__(
        self,
        name: str,
        options: Options,
        *,
        new: LayerRecord | None = None,
        layout: str | None = None,
        ttl: Seconds | None = None,
    ) -> None:
        stored = StoredLayers(
            arguments.name(name),
            made=self.record_class,
            new=new,
            layout=layout,
            **options.storage(ttl, can_create=new is not None),
        )
        super().__init__(stored, options)

    def local_parameters(self) -> dict[str, object]:
        """Return the parameters that are known without I/O."""
        record = self.stored.new if self.stored.handle is None else self.stored.record
        if record is None:
            return {}
        return info.local_parameters(record.head, None) | record.own_parameters

    def info(self) -> Op[FilterInfo]:
        """Return the filter's parameters and how full it is."""
        layers = yield from untold(self._layers())
        return info.layered(self.name, self.stored.record, layers)
