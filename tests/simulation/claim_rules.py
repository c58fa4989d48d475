"""The rules of claims.

A worker that got "claimed" holds the item for its lease, counted from the request by the server's clock, or
until it releases the item. In that time nobody else holds the item, except a worker that claims it by the
same name, and one worker commits it in a generation. No call finds the claim lost in that time, unless the
same name claimed it again. This does not hold after the claim was evicted or after a rollback. A commit
whose reply comes after its receipt has expired may report the claim as lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from tests.rules.claims import Grant, judge
from tests.simulation.history import History, Request, Violation, state_of

RECEIPT_SECONDS: Final = 100.0
"""Seconds for which a commit's retry certainly gets the first answer."""


class ClaimRules:
    """The rules over one history."""

    def __init__(self, history: History, clock: Callable[[], int]) -> None:
        self._history = history
        self._clock = clock
        self._grants: dict[int, list[Grant[Request]]] = {}
        self._committed: dict[int, tuple[Grant[Request], int]] = {}  # with the entry of the log at that time
        self._denied: list[Request] = []  # commits that changed nothing

    def claimed(self, request: Request, state: str) -> None:
        """Check the state in a claim's answer."""
        self._history.check(request, state, self._history.window(request))
        if state == "claimed":
            self._grant(request)
        elif state == "busy":
            self._check_own(request)

    def _check_own(self, request: Request) -> None:
        """Check that a retry is not refused because of its own object's claim without an answer.

        The object keeps the owner of that claim for its lease: a late copy may claim the item after that.
        """
        asked = [each for each in self._history.requests[request.item] if each.verb == "claim"]
        claiming = (each for each in asked if each.claimed)
        holder = max(claiming, key=lambda each: each.claimed[-1], default=None)
        if holder is not None and holder is not request and request.holder is not None:
            self._check_name(request, holder, asked)
        if holder is None or holder.state != "unknown" or holder.owner is not request.owner:
            return
        if holder.holder != request.holder:
            return
        others = [each for each in asked if each.asker is request.owner and each not in (holder, request)]
        is_next = holder.ended <= request.started and not any(each.overlaps(holder) for each in others)
        is_first = not any(each.started > holder.ended for each in others)
        is_kept = self._history.seconds_since(holder) * 1e6 < holder.lease
        if is_kept and is_next and is_first and not self._history.is_disturbed(holder):
            raise Violation("own claim", f'{request} was answered "busy", and {holder} had claimed the item')

    def _check_name(self, request: Request, holder: Request, asked: Sequence[Request]) -> None:
        """Check that work that is run again is not refused because of the claim of its earlier run.

        Nothing is known if a call by the name was in flight meanwhile, if this call retries one that began
        before a later claim of its object, or if the two objects may be clones, which number alike.
        """
        if holder.holder != request.holder or self._history.is_disturbed(holder):
            return
        others = [each for each in asked if each.holder == request.holder and each is not request]
        is_alone = not any(each.overlaps(request) or each.executed >= request.clock for each in others)
        is_retry = any(each.owner is request.owner and each.state == "unknown" for each in others)
        is_same = holder.owner is request.owner
        may_be_clone = holder.owner.process.pid == request.owner.process.pid and not is_same
        if is_alone and not (is_retry or may_be_clone):
            raise Violation("own name", f'{request} was answered "busy" because of {holder}, of its own name')
        if holder.claimed[-1] < request.clock and not state_of(request.held).is_own:
            raise Violation("own name", f'{request} was answered "busy" without `is_own`, despite {holder}')

    def _grant(self, request: Request) -> None:
        grant = Grant(request, request.generation, request.executed, request.clock + request.lease)
        for other in self._grants.get(request.item, ()):
            if self._is_valid(grant) and self._is_valid(other) and other.generation == grant.generation:
                self._check_order(grant, other)
                self._check_alone(request, grant, other)
        self._grants.setdefault(request.item, []).append(grant)

    def _check_order(self, grant: Grant[Request], other: Grant[Request]) -> None:
        """Check that a claim did not take the item of a later claim of the same object and name."""
        took = other.since < grant.since < other.until and self._until(other) == grant.since
        if took and _is_earlier(grant.claim, other.claim):
            raise Violation("taken back", f"{grant.claim} took the item of a later claim, {other.claim}")

    def _check_alone(self, request: Request, grant: Grant[Request], other: Grant[Request]) -> None:
        """Check a grant that a request has made or extended beside another one."""
        grant.until, other.until = self._until(grant), self._until(other)
        if rule := judge(grant, other):
            raise Violation(rule, f"{request} was answered, and {other.claim} holds the item")

    def _is_valid(self, grant: Grant[Request]) -> bool:
        return not self._history.is_disturbed(grant.claim)

    def _until(self, grant: Grant[Request]) -> float:
        """Return the end of a grant: at the latest when a claim by its name took over, answered or not."""
        later = [
            time
            for each in self._history.requests[grant.claim.item]
            for time in each.claimed
            if each.holder == grant.claim.holder and time > grant.since
        ]
        return min([grant.until, *later]) if grant.claim.holder is not None else grant.until

    def _found(self, held: Any) -> Grant[Request] | None:
        every = (grant for grants in self._grants.values() for grant in grants)
        return next((grant for grant in every if grant.claim.held is held), None)

    def got(self, request: Request, owners: Collection[bytes]) -> None:
        """Check that a late copy of a claim takes nothing from a claim that began after the call's end.

        :param owners: the owners in the command.
        """
        has_ended = request.state != "running" and not request.is_cancelled  # the shared call goes on
        for grant in self._grants.get(request.item, ()) if has_ended else ():
            is_later = grant.claim.started > request.ended and self._clock() < self._until(grant)
            is_other = state_of(grant.claim.held).owner not in owners
            if is_later and is_other and self._is_valid(grant) and grant.generation == request.generation:
                raise Violation("taken back", f"a late copy of {request} took the item of {grant.claim}")

    def extended(self, request: Request) -> None:
        """Record that a worker extended its claim."""
        grant = self._found(request.held)
        if grant and grant.claim.ending is None:
            grant.until = request.clock + request.lease
            for other in self._grants[grant.claim.item]:
                if self._is_valid(other) and self._is_valid(grant) and other.since > grant.since:
                    self._check_alone(request, grant, other)

    def giving_back(self, held: Any) -> None:
        """Record that a worker begins to release an item."""
        if grant := self._found(held):
            grant.until = min(grant.until, self._clock())

    def committed(self, request: Request) -> None:
        """Check that an answered commit is the only one."""
        grant = self._found(request.held)
        if grant is None:
            return
        self._history.check(request, None, self._history.window(grant.claim))
        self._check_only(request, grant)
        self.giving_back(request.held)

    def _check_only(self, request: Request, grant: Grant[Request]) -> None:
        if request.committed is None or any(
            each.held is request.held and each.verb == "commit" for each in self._history.left
        ):
            return  # committed before, perhaps by a call without an answer
        other, entry = self._committed.get(grant.claim.item, (grant, 0))
        self._committed[grant.claim.item] = grant, request.committed
        first, last = sorted((entry, request.committed))
        between, item = self._history.log[first : last + 1], grant.claim.item
        was_in = all(each.generation == grant.generation and each.counts[item] for each in between)
        if other is not grant and was_in and self._is_valid(other):
            raise Violation("two commits", f"{request} was answered, and so was the commit of {other.claim}")

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

    def _stands(self, grant: Grant[Request]) -> bool:
        """Return whether a claim is certainly held now, and was so since it was made."""
        claim = grant.claim
        taken_over = any(
            each is not claim
            and (each.verb, each.holder) == ("claim", claim.holder)
            and (each.state == "running" or each.ended > claim.started)
            for each in self._history.requests[grant.claim.item]
        )
        entries = self._history.log[claim.entry :]
        return (
            self._clock() < grant.until
            and not (claim.holder and taken_over)
            and all(entry.generation == grant.generation for entry in entries)
            and claim.ending in (None, "commit")
        )


def _is_earlier(claim: Request, other: Request) -> bool:
    """Return whether one object made a claim before another one; its owners are numbered."""
    mine, theirs = (state_of(each.held).owner[8:14] for each in (claim, other))
    return claim.owner is other.owner and mine[:3] == theirs[:3] and mine < theirs
