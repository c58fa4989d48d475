"""Claimed records of Kafka, and the offset at which a consumer continues in each partition."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

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

    @property
    def is_done(self) -> bool:
        return bool(self.claim.state == "done")


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
        self.finished: list[Any] = []
        self._given_back: list[Any] = []

    def __len__(self) -> int:
        """The number of records that were read, including done and busy ones."""
        return len(self._entries)

    @property
    def unfinished(self) -> list[Any]:
        """The claims on records that are not finished."""
        left = [entry.claim for entry in ([self._current] if self._current else []) + self._work]
        return left + self._given_back

    def fail(self) -> None:
        """Record that the block raised: with `whole`, no record of the batch is finished."""
        if self._whole:
            self._given_back += self.finished
            self.finished = []

    def _finish(self) -> None:
        """Record that the caller asks for the next record, so the current one is finished."""
        if self._current is not None:
            self.finished.append(self._current.claim)
            self._current = None

    def _give_back(self) -> None:
        """Record that another loop begins, so the record at which the last one ended is not finished."""
        if self._current is not None:
            self._given_back.append(self._current.claim)
            self._current = None

    def _is_aging(self) -> bool:
        """True at each third of the lease, when the claims are to be extended."""
        now = time.monotonic()
        if now - self._held_at < self._lease / 3:
            return False
        self._held_at = now
        return True

    def _take(self) -> Any:
        """Return the next record whose claim is still held; None after the last one."""
        while self._work:
            entry = self._work.pop()
            if entry.claim:
                self._current = entry
                return entry
        return None

    def positions(self) -> Positions:
        """Return for each partition the offset of the first record that is not done, or the next one."""
        found: Positions = {}
        for entry in self._entries:
            if found.get(entry.place, (0, None))[1] is None:
                is_done = entry.is_done
                found[entry.place] = entry.offset + is_done, None if is_done else entry.claim.remaining
        return found


def entries_of(read: Read, claims: list[Any]) -> list[Entry]:
    return [Entry(*each, claim) for each, claim in zip(read, claims, strict=True)]


def starts_of(read: Read) -> Positions:
    """Return the first offset in each partition; the consumer goes back to it at once."""
    return {place: (offset, 0.0) for _, place, offset in reversed(read)}


class Partitions:
    """The partitions of a consumer, and the time until which each paused one waits."""

    def __init__(
        self,
        consumer: Any,
        seen: Any,
        *,
        key: Callable[[Any], Any] | None = None,
        lease: float = 30.0,
        whole: bool = False,
    ) -> None:
        self._consumer = consumer
        self._seen = seen
        self._key = key
        self._lease = lease
        self._whole = whole
        self._waiting: dict[PartitionId, float] = {}
        self._behind: dict[PartitionId, int] = {}  # offsets to which the consumer has yet to go back
        self._uncommitted: dict[PartitionId, int] = {}  # offsets whose commit failed, as in a rebalance

    def _items(self, places: Read) -> list[Any]:
        """Return the item of each record: by default its place in the log."""
        if self._key is not None:
            return [self._key(record) for record, _, _ in places]
        return [f"{topic}:{partition}:{offset}" for _, (topic, partition), offset in places]

    def _due(self) -> list[PartitionId]:
        """Return the partitions whose wait is over.

        A partition that is not assigned to this consumer, as in a rebalance, stays due: it may still be
        paused when it is assigned again.
        """
        now = time.monotonic()
        return [place for place, until in self._waiting.items() if until <= now]

    def _resumed(self, places: Iterable[PartitionId]) -> None:
        """Record that partitions are resumed."""
        for place in places:
            del self._waiting[place]

    def _offsets(self, positions: Positions) -> dict[PartitionId, int]:
        """Return the offsets to commit: those of a batch, and earlier ones whose commit failed.

        They count as uncommitted until the caller empties `_uncommitted`.
        """
        self._uncommitted |= {place: offset for place, (offset, _) in positions.items()}
        return dict(self._uncommitted)

    def _wait(self, positions: Positions) -> None:
        """Record which partitions wait, and the offset to which each of them goes back."""
        now = time.monotonic()
        back = {place: offset for place, (offset, pause) in positions.items() if pause is not None}
        self._waiting |= {place: now + (positions[place][1] or 0.0) for place in back}
        self._behind |= back

    def _catch_up(self, assigned: Iterable[PartitionId], seek: Callable[[PartitionId, int], object]) -> None:
        """Go back in the assigned partitions; after an error, the next call goes on with the others.

        A partition that another consumer has by now begins at its committed offset.
        """
        self._behind = {place: self._behind[place] for place in assigned}
        for place, offset in [*self._behind.items()]:
            seek(place, offset)
            del self._behind[place]
