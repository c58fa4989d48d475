"""Claimed records of Kafka, and the offset at which a consumer continues in each partition."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from bloomredis.contrib._flavours import awaited
from bloomredis.contrib._items import Missing, checked, is_kept, item_of

_log = logging.getLogger("bloomredis")

PartitionId = tuple[str, int]
"""A topic and a partition."""

Read = list[tuple[Any, PartitionId, int]]
"""Records, with the place and the offset of each."""
Positions = dict[PartitionId, tuple[int, float | None]]
"""The offset at which each partition continues, and the seconds until then if it has to wait."""


class Entry(NamedTuple):
    """A record, its partition and offset, and the claim on its item."""

    record: Any
    place: PartitionId
    offset: int
    claim: Any


class Unclaimed:
    """The state of a record without a key, in place of a claim on its item."""

    remaining = 0.0

    def __init__(self, *, is_kept: bool) -> None:
        self.state = "claimed" if is_kept else "done"

    def __bool__(self) -> bool:
        return self.state == "claimed"


class Records:
    """The records of a batch."""

    def __init__(self, seen: Any, entries: list[Entry], lease: float, *, whole: bool) -> None:
        self._seen = seen
        self._whole = whole
        self._entries = entries
        self._lease = lease
        self._held_at = time.monotonic()
        firsts: dict[int, Entry] = {}
        for entry in entries:  # equal items have one claim
            firsts.setdefault(id(entry.claim), entry)
        self._work = [entry for entry in firsts.values() if entry.claim][::-1]
        self._current: Entry | None = None
        self._finished: list[Any] = []
        self._given_back: list[Any] = []

    def __len__(self) -> int:
        """Count the records that were read, including done and busy ones."""
        return len(self._entries)

    def finish(self) -> list[Any]:
        """Return the claims to commit, those on finished records; a finished record without a key is done."""
        for claim in self._finished:
            if isinstance(claim, Unclaimed):
                claim.state = "done"
        return keyed(self._finished)

    def unfinished(self) -> list[Any]:
        """Return the claims on records that are not finished."""
        left = [entry.claim for entry in ([self._current] if self._current else []) + self._work]
        return keyed(left + self._given_back)

    def held(self) -> list[Any]:
        """Return all claims of the batch, to extend them."""
        return keyed(self._finished) + self.unfinished()

    def fail(self) -> None:
        """Record that the block raised: with `whole`, no record of the batch is finished."""
        if self._whole:
            self._given_back += self._finished
            self._finished = []

    def _steps(self) -> Iterator[Entry | None]:
        """Yield each record whose claim is still held, and None whenever the claims are to be extended.

        A record is finished when the caller asks for the next one.  If another loop begins, the record at
        which the last one ended is given back.
        """
        if self._current is not None:
            self._given_back.append(self._current.claim)
            self._current = None
        while self._work:
            if time.monotonic() - self._held_at >= self._lease / 3:
                self._held_at = time.monotonic()
                yield None
                continue
            entry = self._work.pop()
            if entry.claim:
                self._current = entry
                yield entry
                if self._current is entry:
                    self._finished.append(entry.claim)
                    self._current = None

    def positions(self) -> Positions:
        """Return for each partition the offset of the first record that is not done, or the next one."""
        found: Positions = {}
        for entry in self._entries:
            if found.get(entry.place, (0, None))[1] is None:
                is_done = entry.claim.state == "done"
                found[entry.place] = entry.offset + is_done, None if is_done else entry.claim.remaining
        return found


def keyed(values: list[Any]) -> list[Any]:
    """Return the items, or the claims, of the records that have a key."""
    return [value for value in values if not isinstance(value, Unclaimed)]


def entries_of(read: Read, items: list[Any], claims: list[Any]) -> list[Entry]:
    """Return the records with their claims, of which there is one for each record that has a key."""
    left = iter(claims)
    found = (item if isinstance(item, Unclaimed) else next(left) for item in items)
    return [Entry(*each, claim) for each, claim in zip(read, found, strict=True)]


B = TypeVar("B", bound=Records)


def _named(place: PartitionId, offset: int) -> str:
    """Return the name of a record for an error."""
    topic, partition = place
    return f"the record of topic {topic}, partition {partition}, offset {offset}"


def starts_of(read: Read) -> Positions:
    """Return the first offset in each partition; the consumer goes back to it at once."""
    return {place: (offset, 0.0) for _, place, offset in reversed(read)}


class Partitions(Generic[B]):
    """The partitions of a consumer, and the time until which each paused one waits."""

    _require: ClassVar[staticmethod[[Any, str], None]]
    _batch: type[B]

    def __init__(
        self,
        consumer: Any,
        seen: Any,
        *,
        key: Callable[[Any], Any] | None = None,
        missing: Missing = "keep",
        lease: float = 30.0,
        whole: bool = False,
        bare: bool = False,
    ) -> None:
        self._require(seen, type(self).__name__)
        self._consumer = consumer
        self._seen = seen
        self._key = key
        self._missing = checked(missing)
        self._lease = lease
        self._whole = whole
        self._bare = bare
        self._waiting: dict[PartitionId, float] = {}
        self._behind: dict[PartitionId, int] = {}  # offsets to which the consumer has yet to go back
        self._uncommitted: dict[PartitionId, int] = {}  # offsets whose commit failed, as in a rebalance

    async def _claimed(self, read: Read) -> B:
        """Return a batch of records that are claimed; after an error, go back."""
        try:
            items = [self._item(*each) for each in read]
            claims = await awaited(self._seen.claim_many(keyed(items), lease=self._lease))
        except BaseException:
            self._go_back(starts_of(read))
            raise
        return self._batch(self._seen, entries_of(read, items, claims), self._lease, whole=self._whole)

    async def _end(self, batch: B) -> None:
        """Commit the finished records of a batch, and give the others back; then commit offsets."""
        try:
            await awaited(self._seen.commit_many(batch.finish()))
            await awaited(self._seen.release_many(batch.unfinished()))
        finally:
            positions = batch.positions()
            self._go_back(positions)
            self._uncommitted |= {place: offset for place, (offset, _) in positions.items()}
            if error := await awaited(self._commit(self._of_mine(self._uncommitted))):
                _log.warning("offsets were not committed (%s): the next batch commits them", error)
            else:
                self._uncommitted.clear()

    def _item(self, record: Any, place: PartitionId, offset: int) -> Any:
        """Return the item of a record: the group, and the key or by default the place in the log."""
        key: Any = f"{place[0]}:{place[1]}:{offset}"
        try:
            key = key if self._key is None else self._key(record)
        except Exception as error:
            error.add_note(f"raised by key= for {_named(place, offset)}")
            raise
        if key is None:
            return Unclaimed(is_kept=is_kept(self._missing, _named(place, offset)))
        return key if self._bare else item_of(self._group, key, bare=False)

    @property
    def _group(self) -> str:
        """The name of the consumer's group, which no public name of the clients has."""
        if hasattr(self._consumer, "_group_id"):  # of aiokafka
            return str(self._consumer._group_id or "")
        # In librdkafka's form of the metadata.
        found = re.match(rb"CGMDv2:.{4}([^\0]*)\0", self._consumer.consumer_group_metadata(), re.DOTALL)
        if found is None:
            raise RuntimeError("this version of confluent-kafka does not tell the group: give bare=True")
        return found[1].decode()

    def _due(self) -> list[PartitionId]:
        """Return the partitions whose wait is over.

        A partition that is not assigned to this consumer, as in a rebalance, stays due: it may still be
        paused when it is assigned again.
        """
        now = time.monotonic()
        return [place for place, until in self._waiting.items() if until <= now]

    def _go_on(self) -> None:
        """Go back where that is pending, and resume the partitions whose wait is over."""
        self._seek_all()
        for place in self._switch("resume", self._due()):
            del self._waiting[place]

    def _go_back(self, positions: Positions) -> None:
        """Let partitions wait, and then go on where they have to."""
        now = time.monotonic()
        back = {place: offset for place, (offset, pause) in positions.items() if pause is not None}
        self._waiting |= {place: now + (positions[place][1] or 0.0) for place in back}
        self._behind |= back
        self._switch("pause", self._behind)
        self._seek_all()

    def _seek_all(self) -> None:
        """Go back in the assigned partitions; after an error, the next call goes on with the others.

        A partition that another consumer has by now begins at its committed offset.
        """
        self._behind = self._of_mine(self._behind)
        for place, offset in [*self._behind.items()]:
            self._seek(place, offset)
            del self._behind[place]

    def _mine(self) -> dict[PartitionId, Any]:
        """Return the partitions that are assigned to this consumer, as objects of the client."""
        return {(each.topic, each.partition): each for each in self._consumer.assignment()}

    def _of_mine(self, offsets: dict[PartitionId, int]) -> dict[PartitionId, int]:
        """Return the offsets in the partitions that are assigned to this consumer."""
        mine = self._mine()
        return {place: offset for place, offset in offsets.items() if place in mine}

    def _switch(self, verb: str, places: Collection[PartitionId]) -> Collection[PartitionId]:
        """Pause or resume those of some partitions that are assigned to this consumer; return them."""
        found = {place: partition for place, partition in self._mine().items() if place in places}
        if found:
            self._call(verb, [*found.values()])
        return found

    def _call(self, verb: str, partitions: list[Any]) -> None:
        """Call a method of the consumer for some partitions."""
        raise NotImplementedError

    def _seek(self, place: PartitionId, offset: int) -> None:
        raise NotImplementedError

    def _commit(self, offsets: dict[PartitionId, int]) -> Any:
        """Commit offsets, if there are any; return the error of the client, or an awaitable of it."""
        raise NotImplementedError
