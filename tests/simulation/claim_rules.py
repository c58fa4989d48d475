"""The rules of claims.

A worker that got "claimed" holds the item for its lease, counted from the request by the server's clock, or
until it releases the item. In that time nobody else holds the item, except a worker that claims it by the
same name, and one worker commits it in a generation. No call finds the claim lost in that time, unless the
same name claimed it again. This does not hold after the claim was evicted or after a rollback. A commit
whose reply comes after its receipt has expired may report the claim as lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.simulation.history import History, Request, Violation

RECEIPT_SECONDS: Final = 100.0
"""Seconds for which a commit's retry certainly gets the first answer."""


class Grant:
    """The time for which a worker holds an item, by the server's clock in microseconds."""

    __slots__ = ("generation", "item", "request", "since", "until")

    def __init__(self, request: Request) -> None:
        self.request, self.item, self.generation = request, request.item, request.generation
        self.since = request.executed
        self.until = request.clock + request.lease


class ClaimRules:
    """The rules over one history."""

    def __init__(self, history: History, clock: Callable[[], int]) -> None:
        self._history = history
        self._clock = clock
        self._grants: dict[int, list[Grant]] = {}
        self._committed: dict[int, tuple[Grant, int]] = {}  # with the entry of the log at that time
        self._denied: list[Request] = []  # commits that changed nothing

    def claimed(self, request: Request, state: str) -> None:
        """Check the state in a claim's answer."""
        if state == "done":
            if not any(entry.counts[request.item] for entry in self._history.window(request)):
                raise Violation("not done", f'{request} was answered "done", and it was not in')
        elif state == "claimed":
            self._grant(request)
        else:
            self._check_own(request)

    def _check_own(self, request: Request) -> None:
        """Check that a retry is not refused because of its own object's claim without an answer."""
        asked = [each for each in self._history.requests[request.item] if each.verb == "claim"]
        holder = max((each for each in asked if each.claims), key=lambda each: each.executed, default=None)
        if holder is None or holder.state != "unknown" or holder.owner is not request.owner:
            return
        if holder.holder != request.holder:
            return
        others = [each for each in asked if each.owner is request.owner and each not in (holder, request)]
        is_next = holder.ended <= request.started and not any(each.overlaps(holder) for each in others)
        is_first = not any(each.started > holder.ended for each in others)
        if is_next and is_first and not self._history.is_disturbed(holder):
            raise Violation("own claim", f'{request} was answered "busy", and {holder} had claimed the item')

    def _grant(self, request: Request) -> None:
        grant = Grant(request)
        for other in self._grants.get(request.item, ()) if self._is_valid(grant) else ():
            if self._is_valid(other) and other.generation == grant.generation and self._overlap(other, grant):
                self._check_alone(grant, other)
        self._grants.setdefault(request.item, []).append(grant)

    def _check_alone(self, grant: Grant, other: Grant) -> None:
        """Check two grants for one time: only the later of two by one name may take over."""
        if grant.request.holder is None or grant.request.holder != other.request.holder:
            raise Violation(
                "two holders", f"{grant.request} and {other.request} hold the item at the same time"
            )
        first, second = sorted((grant, other), key=lambda each: each.since)
        first.until = min(first.until, second.since)

    def _is_valid(self, grant: Grant) -> bool:
        return not self._history.is_disturbed(grant.request)

    def _overlap(self, first: Grant, second: Grant) -> bool:
        return first.since < self._until(second) and second.since < self._until(first)

    def _until(self, grant: Grant) -> int:
        """Return the end of a grant: at the latest when a claim by its name took over, answered or not."""
        later = [
            each.executed
            for each in self._history.requests[grant.item]
            if each.claims and each.holder == grant.request.holder and each.executed > grant.since
        ]
        return min([grant.until, *later]) if grant.request.holder is not None else grant.until

    def _found(self, held: Any) -> Grant | None:
        for grants in self._grants.values():
            for grant in grants:
                if grant.request.held is held:
                    return grant
        return None

    def extended(self, request: Request) -> None:
        """Record that a worker extended its claim."""
        grant = self._found(request.held)
        if grant and grant.request.ending is None:
            grant.until = request.clock + request.lease
            for other in self._grants[grant.item]:
                if other is not grant and self._is_valid(other) and self._is_valid(grant):
                    self._check_extended(request, grant, other)

    def _check_extended(self, request: Request, grant: Grant, other: Grant) -> None:
        if other.generation != grant.generation or other.since <= grant.since:
            return
        if grant.request.holder is not None and grant.request.holder == other.request.holder:
            grant.until = min(grant.until, other.since)  # a later claim by the same name has taken over
        elif self._overlap(other, grant):
            raise Violation("two holders", f"{request} was answered, and {other.request} holds the item")

    def giving_back(self, held: Any) -> None:
        """Record that a worker begins to release an item."""
        if grant := self._found(held):
            grant.until = min(grant.until, self._clock())

    def committed(self, request: Request) -> None:
        """Check that an answered commit is the only one."""
        grant = self._found(request.held)
        if grant is None:
            return
        if not any(entry.counts[request.item] for entry in self._history.window(grant.request)):
            raise Violation("not committed", f"{request} was answered, and the item is not in")
        self._check_only(request, grant)
        self.giving_back(request.held)

    def _check_only(self, request: Request, grant: Grant) -> None:
        if request.committed is None or any(
            each.held is request.held and each.verb == "commit" for each in self._history.left
        ):
            return  # committed before, perhaps by a call without an answer
        other, entry = self._committed.get(grant.item, (grant, 0))
        self._committed[grant.item] = grant, request.committed
        first, last = sorted((entry, request.committed))
        between = self._history.log[first : last + 1]
        was_in = all(each.generation == grant.generation and each.counts[grant.item] for each in between)
        if other is not grant and was_in and self._is_valid(other):
            raise Violation(
                "two commits", f"{request} was answered, and so was the commit of {other.request}"
            )

    def executed(self, request: Request) -> None:
        """Check that no commit is executed after its caller was told that it changed nothing."""
        denied = next((each for each in self._denied if each.held is request.held), None)
        if denied is not None:
            raise Violation(
                "commit after denial", f"{request} was executed, and {denied} raised ClaimLostError"
            )

    def not_held(self, request: Request) -> None:
        """Check that a commit which changed something does not report that it changed nothing."""
        if request.verb == "commit":
            self._denied.append(request)
        if self._history.is_excused(request) or self._clock() - request.clock > RECEIPT_SECONDS * 1e6:
            return
        if any(request in change.claimants for change in self._history.live(request.item)):
            raise Violation("commit denied", f"{request} raised ClaimLostError, and had committed the item")
        grant = self._found(request.held)
        if grant is not None and self._is_valid(grant) and self._stands(grant):
            raise Violation(
                "lost while held", f"{request} raised ClaimLostError before the time of its claim"
            )

    def _stands(self, grant: Grant) -> bool:
        """Return whether a claim is certainly held now, and was so since it was made."""
        claim = grant.request
        taken_over = any(
            each is not claim
            and (each.verb, each.holder) == ("claim", claim.holder)
            and (each.state == "running" or each.ended > claim.started)
            for each in self._history.requests[grant.item]
        )
        entries = self._history.log[claim.entry :]
        return (
            self._clock() < grant.until
            and not (claim.holder and taken_over)
            and all(entry.generation == grant.generation for entry in entries)
            and claim.ending in (None, "commit")
        )
