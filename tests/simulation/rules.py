"""The rules that answers must keep, and the limits that are documented.

* Of all who add an item to one generation of the filter exactly one is answered True, at the latest when those whose
  calls had no answer ask again within a minute.  Not promised after a receipt was evicted, after the server's
  clock jumped, and after a rollback; and nobody answers for a client that died.
* "Already there" and "there" are said of what was in the filter while the call ran, "not there" only of what was not
  in it all the time.  With `local_cache` the filter may be as old as `local_cache_check`.
* No answer is about a generation that the object was not given: that is a `FilterLostError` first, unless
  `on_lost="recreate"`.  There is none without a loss.
* Of a filter that counts, every call that was answered counts once.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.history import Change, History, Request, Violation


class Rules:
    """The rules over one history.  `clocks` returns the clients' clock and the server's."""

    def __init__(self, history: History, clocks: Callable[[], tuple[float, int]], *, counts: bool) -> None:
        self._history = history
        self._clocks = clocks
        self._counts = counts

    # -- adding

    def added(self, request: Request, *, new: bool) -> None:
        """Check the answer to an add."""
        self._check_generation(request)
        if self._counts or new:
            self._take(request, new=new)
        else:
            self._check_present(request)
        if not new and not self._counts:
            self._check_own(request)
            self._check_owed(request)
        if self._counts:
            self._check_once(request)

    def _take(self, request: Request, *, new: bool) -> None:
        """Find the change that an answer is about; nobody else is answered so."""
        mine = [
            each
            for each in self._history.changes[request.item]
            if each.new == new and each.verb == request.verb and self._may_take(each, request)
        ]
        free = [each for each in mine if each.taken is None]
        during = {entry.generation for entry in self._history.window(request)}
        fitting = [each for each in free if each.generation in during]
        live = self._history.live(request.item)
        fitting.sort(key=lambda each: (each not in live, request not in each.claimants, len(each.claimants)))
        if fitting:
            fitting[0].taken = request
            if not request.owner.knows(fitting[0].generation, request):
                raise Violation("silent loss", f"{request} was answered {new} for a filter that it was not given")
        elif free:
            raise Violation("dead generation", f"{request} was answered {new} for a generation that is gone")
        elif any(self._is_shared(each, request) for each in mine):
            return
        elif mine:
            raise Violation("two winners", f"{request} was answered {new}, and {mine[0].taken} was too")
        elif not (self._counts and self._is_excused(request)):
            raise Violation("nothing written", f"{request} was answered {new}, but its call did not do so")

    def _is_shared(self, change: Change, request: Request) -> bool:
        """Return whether two asked for the answer of a third: of these two, one ought to."""
        taken = change.taken
        return taken is not None and taken not in change.claimants and request not in change.claimants

    def _may_take(self, change: Change, request: Request) -> bool:
        return request in change.claimants or any(
            each.state == "unknown" and self._inherits(request, each) for each in change.claimants
        )

    @staticmethod
    def _inherits(request: Request, earlier: Request) -> bool:
        """Return whether a request gets the answer that an earlier one did not get."""
        token = request.earlier
        if token is None:
            return request.owner is earlier.owner
        return token.root is earlier.root or token.token == earlier.token

    def _check_present(self, request: Request) -> None:
        """Check "already there"."""
        entries = self._history.window(request, request.owner.cache_seconds)
        if any(entry.counts[request.item] for entry in entries):
            return
        if request.owner.cache_seconds and self._history.disturbed["rollback"] >= 0:
            return  # the copy has what the server lost
        raise Violation("not there", f'{request} was answered "already there", and it was not')

    def _check_own(self, request: Request) -> None:
        """Check that a request which made the item new is not answered "already there"."""
        for change in self._history.live(request.item):
            if change.verb != request.verb or change.taken or not change.new or request not in change.claimants:
                continue
            if not self._has_other_takers(change, request) and not self._is_excused(request):
                raise Violation("own work", f'{request} was answered "already there" for what it had added')

    def _check_owed(self, request: Request) -> None:
        """Check that a request which asks again is not answered "already there" for its own work."""
        now, clock = self._clocks()
        for change in self._history.live(request.item):
            if change.verb != request.verb or change.taken or not change.new or request in change.claimants:
                continue
            for earlier in change.claimants:
                if (
                    earlier.ended < request.started
                    and self._inherits(request, earlier)
                    and self._history.is_owed(earlier, now, clock)
                    and not self._has_other_takers(change, request, besides=earlier)
                    and not self._has_rival(change, request)
                ):
                    raise Violation("owed", f'{request} was answered "already there", and {earlier} had added it')

    def _has_other_takers(self, change: Change, request: Request, besides: Request | None = None) -> bool:
        now, clock = self._clocks()
        return any(
            each not in (request, besides) and (each.state == "running" or self._history.is_owed(each, now, clock))
            for each in change.claimants
        )

    def _has_rival(self, change: Change, request: Request) -> bool:
        """Return whether another request that might have got the answer ran at the same time."""
        return any(
            each is not request and each.verb == request.verb and self._may_take(change, each) and each.overlaps(request)
            for each in self._history.requests[request.item]
        )

    def _is_excused(self, request: Request) -> bool:
        return self._history.disturbed_since(request.started)

    # -- counting

    def removed(self, request: Request, *, was_in: bool) -> None:
        """Check the answer to a removal."""
        self._check_generation(request)
        if was_in:
            self._take(request, new=False)
        elif all(entry.counts[request.item] for entry in self._history.window(request)):
            raise Violation("not removed", f"{request} was answered False, and it was in all the time")
        self._check_once(request)

    def _check_once(self, request: Request) -> None:
        """Check that an answered request, with the one that it repeats, counted once."""
        now, clock = self._clocks()
        if self._is_excused(request):
            return
        live = [each for each in self._history.live(request.item) if each.verb == request.verb]
        own = [each for each in live if each.claimants == [request] and each.taken is not request]
        if own:
            raise Violation("counted twice", f"{request} counted more than once")
        token = request.earlier
        if token is None or not self._history.is_owed(token, now, clock) or token.ended >= request.started:
            return
        if any(token in each.claimants and each.taken is None for each in live) and not any(
            each.earlier is token and each is not request for each in self._history.requests[request.item]
        ):
            raise Violation("counted again", f"{request} counted, and {token}, whose token it has, did too")

    # -- asking

    def asked(self, request: Request, *, there: bool) -> None:
        """Check the answer to a test."""
        self._check_generation(request)
        window = self._history.window(request, request.owner.cache_seconds if there else 0.0)
        seen = [entry.counts[request.item] > 0 for entry in window]
        if there and not any(seen) and not (request.owner.cache_seconds and self._history.disturbed["rollback"] >= 0):
            raise Violation("false positive", f"{request} was answered True, and it was not in")
        if not there and all(seen):
            raise Violation("false negative", f"{request} was answered False, and it was in all the time")

    # -- generations

    def _check_generation(self, request: Request) -> None:
        """Check that an object answers only for a filter that it was given."""
        owner = request.owner
        entries = self._history.window(request, owner.cache_seconds)
        if not any(owner.knows(entry.generation, request) for entry in entries):
            raise Violation("silent loss", f"{request} was answered for a filter that the object was not given")

    def lost(self, request: Request) -> None:
        """Check a `FilterLostError`."""
        owner = request.owner
        if owner.recreates:
            raise Violation("lost", f"{request} raised FilterLostError, and on_lost is 'recreate'")
        known = owner.acknowledged
        if known is None or known[0] > request.entry or self._history.disturbed["rollback"] >= 0:
            return
        if all(entry.generation == known[1] for entry in self._history.log[known[0] :]):
            raise Violation("no loss", f"{request} raised FilterLostError, and the filter was there all the time")

