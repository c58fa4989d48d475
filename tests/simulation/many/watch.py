"""What was lost, read off the servers' data: the generation of the record, and the keys that were removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from bloomredis.stored.layers.record import RotatingRecord, ScalingRecord
from bloomredis.stored.shards import record as shard_record
from bloomredis.stored.shards.table import LOOK_SECONDS
from tests.history.losses import Loss
from tests.history.plans import Kind
from tests.history.rules import GRAIN
from tests.simulation.database import Database
from tests.simulation.many.kinds import KEY, SHARDS
from tests.simulation.server import START

SLOW: Final = LOOK_SECONDS + GRAIN
"""Seconds for which the loss of a sharded filter's record alone may go unnoticed."""

_GENERATION: Final = slice(40, 48)


class Watch:
    """The losses of a filter.

    :ivar ended: when each generation ended.
    :ivar jumped: when the servers' clock jumped ahead of the clients', and by how much.
    """

    def __init__(self, kind: Kind, data: Sequence[Database]) -> None:
        self.losses: list[Loss] = []
        self.ended: dict[bytes, float] = {}
        self.jumped: list[tuple[float, float]] = []
        self._kind, self._data = kind, data
        self._known: bytes | None = None
        self._deadline: int | None = None
        self._copied: list[Database] = []
        self._damaged: set[bytes] = set()  # generations that miss a layer

    def now(self) -> float:
        """Return the servers' time in seconds."""
        return (self._data[0].now - START) / 1e6

    def later(self, time: float, seconds: float) -> float:
        """Return the servers' time at which so many seconds have passed for the clients."""
        until = time + seconds
        for jumped, by in self.jumped:
            until += by if time <= jumped < until else 0.0
        return until

    def settled(self) -> list[Loss]:
        """Return the losses, those that are noticed late with the time for that."""
        return [
            replace(loss, slow=self.later(loss.end, SLOW) - loss.end) if loss.slow else loss
            for loss in self.losses
        ]

    def look(self, why: str) -> bool:
        """Look at the record; if its generation has ended, and not by itself, that is a loss.

        :returns: whether another one is in the place of one that had all its layers.
        """
        self._look_at_copies(why)
        data = self._data[0]
        record = data.find(KEY.encode())
        known, self._known = self._known, record
        deadline, self._deadline = self._deadline, data.deadlines.get(KEY.encode())
        if known is None or known is record or (record and record[_GENERATION] == known[_GENERATION]):
            return False
        self.ended[known[_GENERATION]] = self.now()
        expired = record is None and deadline is not None and deadline * 1000 <= data.now
        if expired or self._was_over(known, record):
            return False
        slow = SLOW if self._kind == "sharded" else 0.0
        self._lost(f"{why}: the record", slow=slow)
        return record is not None and known[_GENERATION] not in self._damaged

    def _look_at_copies(self, why: str) -> None:
        """Look at the copies: one that vanishes may be of a filter that is being made."""
        for data in self._data[1:]:
            found = data.find(KEY.encode())
            if found is None and data in self._copied:
                self._lost(f"{why}: a copy", sure=False)
            self._copied = [each for each in self._copied if each is not data] + [data] * (found is not None)

    def _was_over(self, known: bytes, record: bytes | None) -> bool:
        """Return whether nothing was lost with a record: all was forgotten or deleted before."""
        if self._kind == "sharded":
            return shard_record.parse(known)[0].state == shard_record.DELETED
        if self._kind != "rotating":
            return False
        before = RotatingRecord.parse(known)
        if record is None:
            return self._newest_is_over(before)
        return before.ended_before(RotatingRecord.parse(record))

    def _newest_is_over(self, record: RotatingRecord) -> bool:
        return max(record.began) // record.width + record.slices < self._data[0].now // record.width

    def _lost(self, what: str, **more: Any) -> None:
        now = self.now()
        self.losses.append(Loss(now, now, what, **more))

    # -- evictions

    def evict_record(self) -> None:
        """Let the record be evicted."""
        self._data[0].remove(KEY.encode())

    def evict_layer(self, place: int) -> None:
        """Let a layer be evicted; of a rotating filter the newest, unless it has come to its end."""
        stored = self._data[0].find(KEY.encode())
        if stored is None or self._kind == "sharded":
            return
        if self._kind == "rotating":
            rotating = RotatingRecord.parse(stored)
            number = rotating.newest
            if self._newest_is_over(rotating):
                return
        else:
            numbers = ScalingRecord.parse(stored).numbers
            number = numbers[place % len(numbers)]
        if self._data[0].remove(b"{%s}:layer:%d" % (KEY.encode(), number)):
            self._damaged.add(stored[_GENERATION])
            self._lost(f"layer {number} is evicted", lasts=True)

    def evict_shard(self, number: int) -> None:
        """Let a shard be evicted; it is not sure that anything is lost if the record does not know it."""
        if self._kind != "sharded":
            return
        key = shard_record.key(KEY, SHARDS, number).encode()
        data = self._data[number % len(self._data)]
        shard, stored = data.find(key), self._data[0].find(KEY.encode())
        if shard is None:
            return
        recorded = stored and shard_record.parse(stored)[1][number]
        data.remove(key)
        self._lost(f"shard {number} is evicted", shard=number, sure=shard[_GENERATION] == recorded)
