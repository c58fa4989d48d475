"""The script calls of a load, beside its adds: they count items, and set segments of bits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from bloomredis.operations.items.membership import Membership
from bloomredis.operations.options import Options
from bloomredis.protocol import calls, forms, scripts
from bloomredis.protocol.receipts import Sessions, in_session
from bloomredis.protocol.replies import Refusal
from bloomredis.protocol.steps import Op
from bloomredis.stored.header import GENERATION
from bloomredis.stored.state.base import Stored
from bloomredis.stored.state.handle import Handle, Layer, LayoutChanged

T = TypeVar("T")
Name = tuple[str] | tuple[()]
Receipt = tuple[bytes] | tuple[()]

_ADD_COUNT: Final = scripts.load_script("add_count", forms.integer)
_COUNT: Final = scripts.load_script("add_count", forms.integer, variant=("one",))
_OR_SEGMENT: Final = scripts.load_script("or_segment", forms.data_or_done)


class LoadedFilter(Protocol):
    """The operations of a filter in one key that a load needs."""

    stored: Stored
    membership: Membership
    sessions: Sessions
    options: Options


class LoadCalls:
    """The calls of a load into one filter."""

    def __init__(self, loaded: LoadedFilter) -> None:
        self.stored = loaded.stored
        self.membership = loaded.membership
        self._sessions = loaded.sessions
        self._retry_safe = loaded.options.retry_safe

    def add_count(self, handle: Handle, added: int) -> Op[None]:
        """Add new items, whose bits other scripts have set, to the stored count."""
        with suppress(LayoutChanged):  # the filter was replaced
            yield from self.reserve(handle, added, unlimited=True)

    def reserve(self, handle: Handle, added: int, *, unlimited: bool = False) -> Op[int]:
        """Count items whose bits other scripts will set; return how many of them the filter has room for.

        Even for no items the filter's identity is checked.

        :param unlimited: count all items, which other scripts have added.
        """
        if not added:
            return self.stored.run(_ADD_COUNT, handle, [added])

        def count(name: Name, receipt: Receipt) -> Op[int]:
            return self.stored.run(
                _ADD_COUNT, handle, (added, *name), receipt, again=bool(name), unlimited=unlimited
            )

        return self._named(added, count)

    def count_reserved(self, layer: Layer, reserved: int, added: int) -> Op[None]:
        """Record how many of the items that were counted for a layer are new; take the others back.

        The layer may not be the newest any more.
        """
        if added == reserved:
            return

        def take_back(name: Name, receipt: Receipt) -> Op[int]:
            stored, arguments = self.stored, (added - reserved, *name)
            handle = None if stored.has_layers else stored.handle
            # The only layer of a plain filter is the filter, which may have been marked since.
            if handle is not None and handle.generation == layer.identity[GENERATION]:
                return stored.run(_ADD_COUNT, handle, arguments, receipt, again=bool(name), unlimited=True)
            keys = (layer.key, *receipt)
            return calls.call(_COUNT, keys, (layer.identity, *arguments), stored.wait, again=bool(name))

        with suppress(Refusal, LayoutChanged):  # the layer has vanished
            yield from self._named(reserved - added, take_back)

    def or_segment(
        self, handle: Handle, first: int, bits: bytes, temporaries: tuple[bytes, bytes]
    ) -> Op[bytes | None]:
        """Set the bits of a segment; return the previous ones, or None if a resent call had set them before.

        :param first: the segment's first byte in the bitmap.
        """

        def or_bits(name: Name, receipt: Receipt) -> Op[bytes | None]:
            return self.stored.run(_OR_SEGMENT, handle, (first, bits, *name), (*temporaries, *receipt))

        return self._named(first, or_bits)

    def _named(self, check: int, call: Callable[[Name, Receipt], Op[T]]) -> Op[T]:
        """Make a call, with a name and the key of its receipt if retries are to be safe."""
        if not self._retry_safe:
            return call((), ())
        return in_session(self._sessions, lambda own: call((own.next_call(check),), (own.key,)))
