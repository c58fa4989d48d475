"""Debts: calls without an answer, and which callers may retry them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tests.history.calls import Ask
from tests.rules.calls import Call as Record
from tests.simulation.processes import Owner

LEASE: Final = 1.0
ASKED_AGAIN_SECONDS: Final = 100.0
"""Seconds after a call for its caller's retry."""


def called(owner: Owner) -> str:
    """Return the name of an object, unique among the processes."""
    return f"{owner.name} of {owner.process.pid}"


class Debts:
    """The calls without an answer.

    An object gives the answer to the next call for the same item. So a token is used only if no other call
    may have got its answer, and its object is not asked for the item any more.

    A token carries the time, so it is used only where the wall clock agrees with that of its process.

    :param records: all calls; more are added as they begin.
    :param wall_error: returns the seconds by which a process's wall clock is wrong.
    """

    def __init__(self, records: Sequence[Record], wall_error: Callable[[int], float]) -> None:
        self._records, self._wall_error = records, wall_error
        self._walls: dict[str, float] = {}  # the error of the wall clock when a token was made
        self._owed: dict[str, tuple[Record, Owner]] = {}
        self._handed: set[tuple[str, str]] = set()
        self._by_token: set[str] = set()

    def add(self, record: Record, owner: Owner, token: str | None) -> None:
        """Add a call without an answer; a call with its own token belongs to its caller."""
        if token is not None:
            record.token = record.token or token
            self._by_token.add(record.name)
        self._owed[record.name] = record, owner
        self._walls[record.name] = self._wall_error(owner.process.pid)

    def since(self, owner: str, item: str) -> float | None:
        """Return when the first unanswered call of an object for an item began, if any."""
        same = (each for each in self._records if (each.owner, each.item) == (owner, item))
        return min((each.start for each in same if each.state == "unknown"), default=None)

    def forget(self) -> None:
        """Drop all calls, whose receipts have expired."""
        self._owed.clear()

    def all(self, now: float) -> list[tuple[Record, Owner]]:
        """Return the calls that may be retried, the latest last."""
        for name, (record, _) in list(self._owed.items()):
            if now - record.start > ASKED_AGAIN_SECONDS:
                del self._owed[name]
        return list(self._owed.values())

    def ask(self, verb: str, owner: Owner, items: Sequence[str], other: str | None) -> Ask | None:
        """Return the request for an object, or None if the object must not be asked.

        :param other: the call without an answer that this one retries.
        """
        if verb.startswith("add") and self._handed.intersection((called(owner), item) for item in items):
            return None
        if other is None:
            earlier = self._remembered(owner, items) if verb.startswith("add") else ()
            return Ask(verb, items, earlier, lease=LEASE)
        record, asker = self._owed.get(other, (None, None))
        if record is None:
            return None
        alone = asker is owner and self._of(owner, items[0]) == [record]
        agrees = self._walls[other] == self._wall_error(owner.process.pid)
        usable = agrees and self._is_quiet(record) and (not alone or len(self._records) % 2)
        token = record.token if usable else None
        if token is None and not alone:
            return None
        del self._owed[other]
        if asker is not owner:
            self._handed.add((record.owner, record.item))
        return Ask(verb, items, (record,), token=token, lease=LEASE)

    def _of(self, owner: Owner, item: str) -> list[Record]:
        return [
            each
            for each, asker in self._owed.values()
            if asker is owner and each.item == item and each.name not in self._by_token
        ]

    def _remembered(self, owner: Owner, items: Sequence[str]) -> list[Record | None]:
        """Return the calls whose answers an object has to give in an unrelated request.

        With several calls about an item their order is unknown, so nobody retries those.
        """
        found: list[Record | None] = []
        for item in items:
            owed = self._of(owner, item)
            for each in owed:
                del self._owed[each.name]
            found.append(owed[0] if len(owed) == 1 else None)
        return found

    def _is_quiet(self, call: Record) -> bool:
        """Return whether no other call of its object may have got its answer."""
        return not any(
            each.verb == "add" and each.end > call.start and each is not call
            for each in self._records
            if (each.owner, each.item) == (call.owner, call.item)
        )
