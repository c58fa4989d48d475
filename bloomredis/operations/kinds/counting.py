"""Operations of a filter from which items can be removed: it has a 4-bit counter in the place of each bit."""

from __future__ import annotations

from typing import ClassVar, Final, Unpack

from bloomredis import arguments
from bloomredis.bits.arrays import np
from bloomredis.errors import OutcomeUnknownError
from bloomredis.operations.items.membership import Membership
from bloomredis.operations.kinds.filter import FilterOperations
from bloomredis.operations.kinds.pipelines import Queueing
from bloomredis.operations.options import Common, Seconds, checked_options
from bloomredis.protocol import forms, scripts
from bloomredis.protocol.calls import send_command
from bloomredis.protocol.pending import PendingCalls
from bloomredis.protocol.pieces import PIECE_BYTES
from bloomredis.protocol.receipts import REMOVAL, Sessions, parse_token
from bloomredis.protocol.steps import Op
from bloomredis.stored import planning
from bloomredis.stored.header import COUNTING
from bloomredis.stored.one_key.single import StoredFilter
from bloomredis.stored.state.handle import Description

_REMOVE: Final = scripts.load_script("remove")


class CountingOperations(Queueing, FilterOperations):
    """The operations of `CountingBloomFilter`."""

    kind: ClassVar[int] = COUNTING

    def __init__(
        self,
        name: str,
        *,
        capacity: int | None = None,
        error_rate: float | None = None,
        ttl: Seconds | None = None,
        **common: Unpack[Common],
    ) -> None:
        options = checked_options(common)
        new = planning.template(capacity, error_rate, None, COUNTING)
        storage = options.storage(ttl, can_create=new is not None)
        stored = StoredFilter(arguments.name(name), new=new, layout=None, kind=COUNTING, **storage)
        super().__init__(stored, options)
        self.removals = PendingCalls(every_call_counts=True)
        sessions, safe = Sessions(stored.auxiliary, REMOVAL), options.retry_safe
        self._removing = Membership(stored, sessions, self.removals, retry_safe=safe, change=_REMOVE)

    def remove(self, item: object, *, token: str | None = None) -> Op[bool]:
        """Remove an item once; True if it was in the filter, False (and nothing is changed) if it was not."""
        encoded = self.codec.encode(item)
        pending = None if token is None else parse_token(token, encoded, REMOVAL)
        try:
            yield from self.membership.resolve_pending(encoded)
        except OutcomeUnknownError as error:
            error.token = None  # the token belongs to the add
            raise
        return (yield from self._removing.add_one(encoded, pending))

    def discard_pending(self) -> None:
        super().discard_pending()
        self.removals.clear(self.stored.generation)

    def ones(self, found: Description) -> Op[int]:
        """Return the number of counters that are not 0; reads all in pieces, at about 1 ms a megabyte."""
        ones = 0
        for start in range(found.first_byte, found.size_bytes, PIECE_BYTES):
            piece = yield from send_command(
                ("GETRANGE", found.key, start, start + PIECE_BYTES - 1), forms.data
            )
            pairs = np.frombuffer(piece, dtype=np.uint8)
            ones += int(np.count_nonzero(pairs & 0xF0)) + int(np.count_nonzero(pairs & 0x0F))
        return ones
