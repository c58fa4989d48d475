"""The operations that every filter has, on one stored filter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Self, TypeVar

from bloomredis.bits.batch import Encoded
from bloomredis.later import later
from bloomredis.operations.claims.calls import Claims
from bloomredis.operations.claims.requests import ClaimRequest
from bloomredis.operations.claims.state import ClaimState
from bloomredis.operations.codec import Codec
from bloomredis.operations.items.local_cache import CachedMembership
from bloomredis.operations.items.membership import Membership
from bloomredis.operations.kinds.verbs import ItemOperations, StoreAnswers
from bloomredis.operations.options import Options
from bloomredis.protocol import forms
from bloomredis.protocol.calls import send_command
from bloomredis.protocol.forks import process
from bloomredis.protocol.pending import PendingCalls
from bloomredis.protocol.receipts import Sessions
from bloomredis.protocol.steps import Batches, Op
from bloomredis.stored.foreign.bitmap import ForeignLayout
from bloomredis.stored.header import COUNTING, FILTER
from bloomredis.stored.module.filter import StoredModule
from bloomredis.stored.one_key.single import StoredFilter
from bloomredis.stored.state.base import Stored
from bloomredis.stored.state.handle import Description
from bloomredis.stored.state.knowledge import untold

if TYPE_CHECKING:
    from bloomredis.operations.whole import info, loading, module_loading
    from bloomredis.operations.whole.info import FilterInfo
else:
    info, loading, module_loading = later("bloomredis.operations.whole", "info", "loading", "module_loading")

T = TypeVar("T")

_BITCOUNT_BYTES: Final = 4 << 20  # one BITCOUNT takes under 2 ms


class FilterOperations(ItemOperations):
    """The operations of one filter object."""

    kind: ClassVar[int] = FILTER
    """The kind in the header."""

    def __init__(
        self,
        stored: Stored,
        options: Options,
        *,
        foreign: ForeignLayout | None = None,
        cache_seconds: float | None = None,
    ) -> None:
        """Make the operations of a filter.

        :param cache_seconds: seconds for which the local cache answers without the server; None for no cache.
        """
        self.name = stored.name
        self.stored = stored
        self.options = options
        self.layout = foreign
        self.codec = Codec(options.encode, foreign)
        self.sessions = Sessions(stored.auxiliary)
        self.pending = PendingCalls(every_call_counts=self.kind == COUNTING)
        self.membership = Membership(
            stored,
            self.sessions,
            self.pending,
            retry_safe=options.retry_safe,
            replicas=cache_seconds is None,
        )
        self.cache: CachedMembership | None = None
        if cache_seconds is not None:
            self.cache = CachedMembership(stored, self.pending, self.membership, cache_seconds)
        self.items: Membership | CachedMembership = self.cache or self.membership
        self.claims = Claims(stored, self.sessions, self.pending, retry_safe=options.retry_safe)

    def part_of(self, encoded: bytes) -> Self:
        """Return the part that has an item."""
        return self

    # -- items

    def answer_store(self) -> StoreAnswers:
        """Return a function that stores answers for retries, for the present generation and process."""
        handle, made_in = self.stored.handle, process()

        def store(encoded: Encoded, answers: Sequence[bool]) -> None:
            if handle is not None and made_in is process():
                for item, answer in zip(encoded, answers, strict=False):
                    self.pending.leave(item, handle.generation, answer=answer)

        return store

    def in_local_cache(self, item: object) -> bool:
        """Return whether the local cache proves that an item is in the filter."""
        return self.cache is not None and self.cache.has(self.codec.encode(item))

    def update(self, source: Batches, progress: Callable[[int], object] | None = None) -> Op[int]:
        """Add items as fast as possible, without an answer for each; return how many were read.

        :param source: an iterator of batches of `loading.LOAD_ITEMS`.
        """
        stored = self.stored
        if isinstance(stored, StoredModule) and not stored.refuses:
            return (yield from module_loading.load_items(stored, self.codec, source, progress))
        return (yield from loading.load(self, self.codec, source, progress))

    # -- claims

    def attempt_one(self, request: ClaimRequest) -> Op[ClaimState]:
        """Make an attempt at a request; return the claim, or raise the error."""
        return self.claims.one(request)

    def on_items(self, requests: Sequence[ClaimRequest]) -> Op[None]:
        """Make an attempt at requests of one group."""
        return self.claims.each(requests)

    # -- the filter as a whole

    def local_parameters(self) -> dict[str, object]:
        """Return the parameters that are known without I/O."""
        if isinstance(self.stored, StoredModule):
            return self.stored.parameters
        head = self.stored.head if isinstance(self.stored, StoredFilter) else None
        return info.local_parameters(head, self.layout)

    def info(self) -> Op[FilterInfo]:
        """Return the filter's parameters and how full it is."""
        layers = yield from untold(self._layers())
        return info.combined(layers, grows=isinstance(self.stored, StoredModule))

    def on_part(self, number: int, call: Callable[[FilterOperations], Op[T]]) -> Op[T]:
        """Run an operation on the only part."""
        return call(self)

    def _layers(self) -> Op[list[FilterInfo]]:
        layers = []
        for found in (yield from self.stored.current()):
            ones = yield from self.ones(found)
            layers.append(info.describe(self.name, found, ones))
        return layers

    def ones(self, found: Description) -> Op[int]:
        """Return the number of bits that are set."""
        if not found.has_bits:
            return info.expected_ones(found.header)
        ones = 0
        for start in range(found.first_byte, found.size_bytes, _BITCOUNT_BYTES):
            ones += yield from send_command(
                ("BITCOUNT", found.key, start, start + _BITCOUNT_BYTES - 1), forms.integer
            )
        return ones

    def discard_pending(self) -> None:
        self.pending.clear(self.stored.generation)
