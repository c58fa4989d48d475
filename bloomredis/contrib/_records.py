"""Records of Kafka that were claimed, and where a consumer has to go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

Place = tuple[str, int]
"""A topic and a partition."""

Read = list[tuple[Any, Place, int]]
"""Records, with the place and the offset of each."""
Positions = dict[Place, tuple[int, float | None]]
"""The offset with which each partition goes on, and the seconds until then if it has to wait."""


class Entry(NamedTuple):
    """A record, where it is, and the claim on its item."""

    record: Any
    place: Place
    offset: int
    claim: Any

    @property
    def is_done(self) -> bool:
        return bool(self.claim.state == "done")


class Records:
    """The records of a batch."""

    def __init__(self, seen: Any, entries: list[Entry], lease: float) -> None:
        self._seen = seen
        self._entries = entries
        self._lease = lease
        self._held_at = time.monotonic()
        firsts: dict[int, Entry] = {}
        for entry in entries:  # equal items have one claim
            firsts.setdefault(id(entry.claim), entry)
        self._work = [entry for entry in firsts.values() if entry.claim][::-1]
        self._current: Entry | None = None
        self.finished: list[Any] = []

    def __len__(self) -> int:
        """The number of records that were read, with those that are done or busy."""
        return len(self._entries)

    @property
    def unfinished(self) -> list[Any]:
        """The claims on records that were not worked on to their end."""
        return [entry.claim for entry in ([self._current] if self._current else []) + self._work]

    def _finish(self) -> None:
        """Note that the caller has come back for the next record."""
        if self._current is not None:
            self.finished.append(self._current.claim)
            self._current = None

    def _is_aging(self) -> bool:
        """True at each third of the lease, when the claims are to be extended."""
        now = time.monotonic()
        if now - self._held_at < self._lease / 3:
            return False
        self._held_at = now
        return True

    def _take(self) -> Any:
        """Return the next record that is still held; None if there is none."""
        while self._work:
            entry = self._work.pop()
            if entry.claim:
                self._current = entry
                return entry
        return None

    def positions(self) -> Positions:
        """Return the first offset in each partition that is not done, or the one after the last."""
        found: Positions = {}
        for entry in self._entries:
            if found.get(entry.place, (0, None))[1] is None:
                is_done = entry.is_done
                found[entry.place] = entry.offset + is_done, None if is_done else entry.claim.remaining
        return found


def entries_of(read: Read, claims: list[Any]) -> list[Entry]:
    return [Entry(*each, claim) for each, claim in zip(read, claims, strict=True)]


def starts_of(read: Read) -> Positions:
    """Return the first offset in each partition, to go back to at once."""
    return {place: (offset, 0.0) for _, place, offset in reversed(read)}


class Partitions:
    """The partitions of a consumer, and until when each of them waits."""

    def __init__(
        self, consumer: Any, seen: Any, *, key: Callable[[Any], Any] | None = None, lease: float = 30.0
    ) -> None:
        self._consumer = consumer
        self._seen = seen
        self._key = key
        self._lease = lease
        self._waiting: dict[Place, float] = {}

    def _items(self, places: Read) -> list[Any]:
        """Return the item of each record: by default its place in the log."""
        if self._key is not None:
            return [self._key(record) for record, _, _ in places]
        return [f"{topic}:{partition}:{offset}" for _, (topic, partition), offset in places]

    def _due(self) -> list[Place]:
        """Return the partitions that have waited for long enough."""
        now = time.monotonic()
        due = [place for place, until in self._waiting.items() if until <= now]
        for place in due:
            del self._waiting[place]
        return due

    def _wait(self, positions: Positions) -> dict[Place, int]:
        """Note which partitions wait; return the offset to which each of them goes back."""
        now = time.monotonic()
        back = {place: offset for place, (offset, pause) in positions.items() if pause is not None}
        self._waiting |= {place: now + (positions[place][1] or 0.0) for place in back}
        return back
