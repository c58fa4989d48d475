"""Losses, read from the servers' data: the record's generation, and the keys that were removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from bloomredis.stored.header import IDENTITY_BYTES
from bloomredis.stored.layers.record import RotatingRecord, ScalingRecord
from bloomredis.stored.shards import record as shard_record
from bloomredis.stored.shards.record import ShardRecord
from tests.history.plans import Kind
from tests.rules.generations import Loss
from tests.simulation.database import Database
from tests.simulation.many.kinds import KEY, SHARDS
from tests.simulation.network import node_of
from tests.simulation.server import START

_GENERATION: Final = slice(40, 48)


class Watch:
    """The losses of a filter.

    For a sharded filter they are those of its shards: while all exist, the loss of the record loses
    nothing.

    :ivar missing: the last time at which no record was stored.
    """

    def __init__(self, kind: Kind, data: Sequence[Database]) -> None:
        self.losses: list[Loss] = []
        self.missing = -1.0
        self._kind, self._data = kind, data
        self._known: bytes | None = None
        self._deadline: int | None = None
        self._damaged: set[bytes] = set()  # generations without one of their layers
        self._stored: dict[int, bytes | None] = {}  # the identities of shards by number
        self._in_use: dict[int, bytes] = {}  # the shards named by a record in use, by number

    def now(self) -> float:
        """Return the servers' time in seconds."""
        return (self._data[0].now - START) / 1e6

    def look(self, why: str, *, is_call: bool) -> str:
        """Read the stored data: what is missing and did not expire is a loss.

        :param is_call: a call made the change.
        :returns: a change that no call may make, if a call made it.
        """
        data = self._data[0]
        record = data.find(KEY.encode())
        if record is None:
            self.missing = self.now()
        known, self._known = self._known, record
        deadline, self._deadline = self._deadline, data.deadlines.get(KEY.encode())
        if self._kind == "sharded":
            if known and record and record[_GENERATION] != known[_GENERATION]:
                self._lost(f"{why}: the record", sure=False)  # its shards are lost one by one
            return self._look_at_shards(why, shard_record.parse(record) if record else None, is_call=is_call)
        if known is None or known is record or (record and record[_GENERATION] == known[_GENERATION]):
            return ""
        expired = record is None and deadline is not None and deadline * 1000 <= data.now
        if expired or self._was_over(known, record):
            return ""
        self._lost(f"{why}: the record")
        is_whole = known[_GENERATION] not in self._damaged
        return "replaced a filter that misses nothing" if record and is_whole else ""

    def _look_at_shards(self, why: str, record: ShardRecord | None, *, is_call: bool) -> str:
        """Read the shards, which are in use once a record in use has named them."""
        named: dict[int, bytes] = {}
        if record and record.state == shard_record.IN_USE:
            made = enumerate(record.made)
            named = {number: record.shard_made(time).identity for number, time in made}
        wrong = ""
        for number in range(SHARDS):
            shard = self._node(number).find(shard_key(number))
            identity = shard and shard[:IDENTITY_BYTES]
            before, self._stored[number] = self._stored.get(number), identity
            used = self._in_use.pop(number, None)
            if used is not None and used != identity:
                self._lost(f"{why}: shard {number}", shard=number)
                if used == named.get(number):
                    wrong = f"dropped shard {number}, which is in use"
            elif used is not None or (identity and identity == named.get(number)):
                self._in_use[number] = identity or b""
            elif before and before != identity and not is_call:  # a record may still name it
                self._lost(f"{why}: shard {number}", shard=number, sure=False)
        return wrong

    def _was_over(self, known: bytes, record: bytes | None) -> bool:
        """Return whether the record's loss lost nothing: all had expired or was deleted before."""
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
        """Evict the record; its remaining shards show the loss to whoever opens the filter."""
        if self._data[0].remove(KEY.encode()) and self._kind == "sharded":
            self._lost("the record is evicted", sure=False, lasts=True)

    def evict_layer(self, place: int) -> None:
        """Evict a layer; for a rotating filter the newest, unless it has expired."""
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
        """Evict a shard."""
        if self._kind == "sharded":
            self._node(number).remove(shard_key(number))

    def _node(self, number: int) -> Database:
        """Return the data of the node that has a shard."""
        return self._data[node_of(shard_key(number), len(self._data))]


def shard_key(number: int) -> bytes:
    """Return the key of a shard."""
    return shard_record.key(KEY, SHARDS, number).encode()
