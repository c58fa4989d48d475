"""Filters with one capacity, whose calls stop where it is reached.

The scripts of a capped filter refuse the first new item that it has no room for.  With ``on_full="raise"``
the caller gets that refusal.  Otherwise the object warns or calls the caller's function, once for each
generation, and then uses scripts without the limit.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import Final, TypeVar

from bloomredis.arguments import OnFull
from bloomredis.bits.layout import Packing
from bloomredis.errors import FilterFullError
from bloomredis.protocol import replies, scripts
from bloomredis.protocol.replies import Refusal
from bloomredis.protocol.scripts import CAPPED
from bloomredis.protocol.steps import Op
from bloomredis.stored.header import Header
from bloomredis.stored.state.handle import Handle
from bloomredis.stored.state.versioned import ParametersT, Versioned

R = TypeVar("R")

_log: Final = logging.getLogger("bloomredis")


class Capped(Versioned[ParametersT]):
    """A filter that may have a reaction to its capacity.

    :ivar on_full: the reaction; None for a filter without one.
    """

    on_full: OnFull | None = None
    _passed: bytes | None = None  # the generation whose capacity may be passed

    @property
    def refuses(self) -> bool:
        return self.on_full == "raise"

    @property
    @abstractmethod
    def head(self) -> Header | None:
        """The parameters of the filter, as far as they are known."""

    @property
    @abstractmethod
    def way_out(self) -> str:
        """The consequence of more items than the capacity, and the way out."""

    def _variant_for(self, layout: Packing, generation: bytes) -> scripts.Variant:
        variant = super()._variant_for(layout, generation)
        is_capped = self.on_full is not None and generation != self._passed
        return (CAPPED, *variant) if is_capped else variant

    def unlimited(self, script: scripts.Script[R], handle: Handle) -> scripts.Script[R]:
        return self.script(script, super()._variant_for(handle.layout, handle.generation))

    def react_to_full(self, handle: Handle) -> None:
        """Raise `FilterFullError`; or warn or call the caller's function, and let the capacity be passed.

        :param handle: the handle of this object.
        """
        head = self.head
        capacity = 0 if head is None else head.capacity
        error = FilterFullError(f"{self.name!r} is full and was made for capacity {capacity}: {self.way_out}")
        if self.refuses:
            raise error
        self._passed = handle.generation
        self.remember(handle.identity, handle.layout, generation=handle.generation)
        if callable(self.on_full):
            self.on_full(error)
        else:
            _log.warning("%s", error)

    def _recover_full(self, refusal: Refusal, handle: Handle) -> Op[None]:
        if not handle.is_capped:
            raise refusal
        self.react_to_full(handle)
        yield from ()  # which makes this a generator, like the other recoveries

    RECOVERY = Versioned.RECOVERY | {replies.FULL: _recover_full}
