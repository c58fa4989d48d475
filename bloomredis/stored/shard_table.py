"""The record of a sharded filter as an object knows it: its parameters, and which shards exist."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, TypeVar

from bloomredis.errors import ConnectionFailedError, ServerRefusedError
from bloomredis.protocol import clock, scripts
from bloomredis.protocol.calls import call
from bloomredis.protocol.gather import gather, unless_failed
from bloomredis.protocol.replies import Refusal, unhex
from bloomredis.protocol.steps import Op
from bloomredis.stored.base import Arguments
from bloomredis.stored.handle import Handle, LayoutChanged
from bloomredis.stored.header import Header
from bloomredis.stored.shard import NO_GENERATION, StoredShard
from bloomredis.stored.shard_record import ShardRecord
from bloomredis.stored.shard_servers import RecordServers

T = TypeVar("T")

LOOK_SECONDS: Final = 1.0
"""What an object in use knows of the record is no older than that."""
_AT_ONCE: Final = 256
"""Shards that are looked at in one round trip."""
_RECORD: Final = scripts.load("record_shard")


class RecordTable(RecordServers):
    """The record, with its table of shards and its expiry."""

    def __init__(self, name: str, **parameters: Any) -> None:
        self._shards: dict[int, StoredShard] = {}
        self._table: list[bytes] = []
        self._until = 0.0  # it expires, by the clock of this process; 0 for never
        self._looked = 0.0  # when the record was asked for, by that clock
        self.record: ShardRecord | None = None
        super().__init__(name, **parameters)

    @property
    def head(self) -> Header | None:
        return self.record.head if self.record else super().head

    def shard(self, number: int) -> StoredShard:
        """Return the state of a shard."""
        if number not in self._shards:
            self._shards.setdefault(number, StoredShard(self, number, self.known))
        return self._shards[number]

    def reset(self) -> None:
        super().reset()
        for shard in list(self._shards.values()):
            shard.reset()

    def _note(self, ttl: int, asked: float) -> None:
        """Note when the record was asked for: what came late may be old by now."""
        self._looked = asked
        self._until = clock.now() + ttl / 1000 if ttl >= 0 else 0.0

    @property
    def known(self) -> ShardRecord:
        """The record as this object knows it; the filter has to be open."""
        if self.record is None:
            raise RuntimeError(f"{self.name!r} has not been opened")
        return self.record

    @property
    def remaining(self) -> int:
        """Milliseconds to live of a shard that is made now, 0 if it does not expire."""
        return max(1, round((self._until - clock.now()) * 1000)) if self._until else 0

    def entry(self, number: int) -> bytes:
        """Return the generation of a shard as it was recorded when this object looked, b"" for none."""
        return self._table[number]

    def recorded(self, number: int, handle: Handle) -> Op[bytes]:
        """Return the generation of a shard that is recorded now, b"" if it has never been made.

        :raises LayoutChanged: the record is not that of the handle any more.
        """
        return self.record_shard(number, handle, b"", b"", lasts=False)

    def record_shard(
        self, number: int, handle: Handle, generation: bytes, replaced: bytes, *, lasts: bool
    ) -> Op[bytes]:
        """Record a shard's generation if the entry is `replaced`; return the generation that is recorded now.

        :param lasts: the shard does not expire; nothing is recorded if the record does.
        :raises LayoutChanged: the record is not that of the handle any more.
        """
        arguments: Arguments = [
            handle.identity,
            number,
            generation,
            replaced or NO_GENERATION,
            b"1" if lasts else b"",
        ]
        wait = self.wait if generation else None
        asked = clock.now()
        try:
            text, ttl = yield from self._on(0, call(_RECORD, [self.key], arguments, wait))
        except Refusal as refusal:
            refused = refusal
        else:
            entry = unhex(text).replace(NO_GENERATION, b"")
            if self.handle is handle:  # no other call has opened another filter
                self._table[number] = entry
                self._note(ttl, asked)
            return entry
        yield from self._recover(refused, handle)
        raise LayoutChanged

    def shard_lost(self, number: int) -> None:
        """Notice the loss of a shard: raise `FilterLostError` or go on, as `on_lost` says."""
        self._tell(f"shard {number} of {self.name!r} was expired, evicted, flushed, deleted or replaced")

    def is_look_due(self) -> bool:
        """True if the record was not read in the last second."""
        return not 0 <= clock.now() - max(self._looked, self.under_way.looked) < LOOK_SECONDS

    def look(self) -> Op[None]:
        """Look whether the record is still the same, and open it anew if not; a loss is noticed.

        A record that cannot be read is looked at again in a second: its server may be away.
        """
        self.under_way.looked = clock.now()
        with suppress(ConnectionFailedError, ServerRefusedError, LayoutChanged):
            yield from self.recorded(0, (yield from self.acquire()))

    def on_its_server(self, number: int, operation: Op[T]) -> Op[T]:
        """Run an operation on the server that has a shard."""
        return self._on(self.known.server(number), operation)

    def made(self) -> list[int]:
        """Return the numbers of the shards that are known to have been made."""
        return [number for number, entry in enumerate(self._table) if entry]

    def _each(self, record: ShardRecord, numbers: Iterable[int], call: Callable[[int], Op[T]]) -> Op[list[T]]:
        """Call for each number of a shard, on the server that has it."""
        calls = (self._on(record.server(number), call(number)) for number in numbers)
        return unless_failed((yield from gather(calls, most=_AT_ONCE)))
