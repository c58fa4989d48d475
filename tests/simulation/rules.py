"""The rules for answers, and the documented limits.

* Of all adds of an item to one generation of the filter exactly one gets True, at the latest when the
  callers without an answer retry within a minute. This does not hold for a call whose own receipt was
  evicted, or expired because the server's clock was advanced, nor with `retry_safe=False`; and nobody
  answers for a client that died. After a rollback it holds as before: receipts go back with the items.
* What an answer says about an item was true at some time during the call. With `local_cache` the filter may
  be as old as its seconds.
* No answer is about a generation that the object did not get: the call raises `FilterLostError` first,
  unless `on_lost="recreate"`. Without a loss it never raises that.
* Every call that was sent for a lost filter raises it, `create()` too. Once an object has raised it, for a
  call that asks about items, it goes on with a filter that somebody has made on purpose since: by `clear()`
  or `acknowledge()`. Only these mark a filter.
* `acknowledge()` answers whether its object knew another filter than the one that it leaves behind, which
  is marked. For an object that knew none, it makes none.
* In a counting filter every answered call counts once.
* A load ends with all its items in the filter, and has taken nobody else's answer. A call refused because
  the filter is full has added nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bloomredis.protocol.receipts import RECEIPT_SECONDS
from tests.simulation.history import TOKEN_SECONDS, Change, History, Request, Violation
from tests.simulation.repeats import Repeats

MOST_COUNTED: Final = 15
"""A counter at this value stays there, since its true count is unknown."""


class Rules(Repeats):
    """The rules over one history. `clocks` returns the clients' clock and the server's.

    :param marks: filters of this kind can be marked.
    """

    def __init__(
        self, history: History, clocks: Callable[[], tuple[float, int]], *, counts: bool, marks: bool = True
    ) -> None:
        super().__init__(history)
        self._marks = marks
        self._clocks = clocks
        self._counts = counts

    # -- adding

    def added(self, request: Request, *, new: bool) -> None:
        """Check the answer to an add."""
        self._check_generation(request)
        if self._counts or new:
            self._take(request, new=new)
        else:
            self._check_presence(request, answer=False)
            self._check_own(request)
            self._check_owed(request)
        if self._counts:
            self._check_once(request)

    def _take(self, request: Request, *, new: bool) -> None:
        """Find the change that an answer is about, and take it: no other answer may be about it."""
        mine = self._takeable(request)
        if self._match(request, set()):
            self._check_taken(next(each for each in mine if each.taken is request), request, mine, new=new)
        elif any(self._is_shared(each, request) or self._yields(each, request) for each in mine):
            return
        elif mine:
            raise Violation("two winners", f"{request} was answered {new}, and {mine[0].taken} was too")
        elif not (self._counts and self._history.is_excused(request)):
            raise Violation("nothing written", f"{request} was answered {new}, but its call did not do so")

    def _check_taken(self, taken: Change, request: Request, mine: list[Change], *, new: bool) -> None:
        """Check that an answer is about a filter that the object got."""
        owner = request.owner
        stood = any(entry.generation == taken.generation for entry in self._history.window(request))
        if stood and owner.knows(taken.generation, request):
            return
        if any(owner.knows(each.generation, request) and self._is_shared(each, request) for each in mine):
            taken.taken = None  # the answer was about that filter, though it may be gone
        elif not stood:
            raise Violation("dead generation", f"{request} was answered {new} for a generation that is gone")
        elif not owner.recreates:
            raise Violation("silent loss", f"{request} was answered {new} for a filter that it was not given")

    def _takeable(self, request: Request) -> list[Change]:
        """Return the changes that the answer to a request may be about, the likeliest first."""
        new = request.answer and request.verb == "add"
        inherited = self._inherited(request)
        found = [
            each
            for each in self._history.changes[request.item]
            if each.new == new and each.verb == request.verb and self._may_take(each, request, inherited)
        ]

        if len(found) < 2:
            return found
        live = self._history.live(request.item)
        standing = {entry.generation for entry in self._history.window(request)}

        def unlikely(change: Change) -> tuple[bool, ...]:
            own, owed = request in change.claimants, not set(inherited).isdisjoint(change.claimants)
            known = request.owner.knows(change.generation, request)
            stood = change.generation in standing
            return not known, change not in live, not stood, not own, change.claimants != [request], not owed

        return sorted(found, key=unlikely)

    def _match(self, request: Request, seen: set[int]) -> bool:
        """Find a change for a request, where others take another one if necessary (Kuhn's algorithm)."""
        for change in self._takeable(request):
            if id(change) not in seen:
                seen.add(id(change))
                if change.taken is None or change.taken.is_load or self._match(change.taken, seen):
                    change.taken = request
                    return True
        return False

    def _is_shared(self, change: Change, request: Request) -> bool:
        """Return whether two retried a third request, one with its token: only one of them should."""
        taken = change.taken
        if taken is None or (taken.earlier is None and request.earlier is None):
            return False
        return any(self._inherits(taken, each) for each in self._inherited(request))

    def _yields(self, change: Change, request: Request) -> bool:
        """Let a request give its change to another one that shares the answer of a third."""
        other = change.taken
        if other is None or not any(
            self._is_shared(each, other) for each in self._takeable(other) if each is not change
        ):
            return False
        change.taken = request
        return True

    def _may_take(self, change: Change, request: Request, inherited: list[Request] | None = None) -> bool:
        if any(each is request or self._runs_beside(each, request) for each in change.claimants):
            return True
        inherited = self._inherited(request) if inherited is None else inherited
        return bool(inherited) and any(
            each in inherited
            or (each.is_load and each.owner is request.owner)  # it leaves the answer to the pending caller
            or any(
                (each.earlier or request.earlier) and self._inherits(each, earlier) for earlier in inherited
            )
            for each in change.claimants
        )

    def _check_presence(self, request: Request, *, answer: bool) -> None:
        """Check an answer about an item, which may be in the filter or in the object's cache."""
        owner = request.owner
        is_cached = owner.cache_seconds > 0 and (
            self._history.rolled_back >= 0  # the cache has what the server lost
            or any(
                entry.counts[request.item] and (request.is_beside or owner.knows(entry.generation, request))
                for entry in self._history.window(request, owner.cache_seconds)
            )
        )
        self._history.check(request, answer, self._history.window(request), cached=is_cached)

    def _check_own(self, request: Request) -> None:
        """Check that someone who may report a change as new does not get "already there"."""
        for change in self._history.live(request.item):
            if change.verb != request.verb or change.taken or not change.new:
                continue
            own = request in change.claimants or self._is_last_beside(change, request)
            if own and not self._has_other_takers(change, request) and not self._history.is_excused(request):
                raise Violation("own work", f'{request} was answered "already there" for what it had added')

    def _is_last_beside(self, change: Change, request: Request) -> bool:
        """Return whether the calls that made a change left its answer to a concurrent call of the object."""
        return bool(change.claimants) and all(
            each.state == "answered"
            and self._runs_beside(each, request)
            and not self._history.is_excused(each)
            for each in change.claimants
        )

    def _check_owed(self, request: Request) -> None:
        """Check that a retry does not get "already there" because of its own earlier attempt.

        A call with the token of another object leaves nothing with its own: its caller has the token.
        """
        for change in self._history.live(request.item):
            if change.verb != request.verb or change.taken or not change.new or request in change.claimants:
                continue
            for earlier in change.claimants:
                if (
                    earlier.ended < request.started
                    and self._inherits(request, earlier)
                    and not _follows_equal(earlier, change)
                    and not (request.earlier is None and earlier.has_foreign_token)
                    and self._history.is_due(earlier)
                    and not self._has_other_takers(change, request, besides=earlier)
                    and not self._has_rival(change, request)
                ):
                    raise Violation(
                        "owed", f'{request} was answered "already there", and {earlier} had added it'
                    )

    def _has_other_takers(self, change: Change, request: Request, besides: Request | None = None) -> bool:
        """Return whether another request may still report a change.

        A token is for its caller's own item: of callers with errors only those with tokens count then.
        """
        now, clock = self._clocks()
        others = [each for each in change.claimants if each not in (request, besides)]
        return any(
            each.state == "running"
            or (
                self._history.may_be_owed(each, now, clock)
                and not self._was_asked_for(each)
                and (request.earlier is None or each.token is not None or each.is_cancelled)
            )
            for each in others
        ) or any(
            each.state == "running" and each.verb == request.verb and self._may_take(change, each)
            for each in self._history.requests[request.item]
            if each is not request
        )

    def _has_rival(self, change: Change, request: Request) -> bool:
        """Return whether a concurrent request may have got the answer.

        A cancelled request's shared call continues, and its answer is kept.
        """
        now, clock = self._clocks()
        return any(
            each is not request
            and each.verb == request.verb
            and self._may_take(change, each)
            and (
                each.overlaps(request) or (each.is_cancelled and self._history.may_be_owed(each, now, clock))
            )
            for each in self._history.requests[request.item]
        )

    # -- counting

    def removed(self, request: Request, *, was_in: bool) -> None:
        """Check the answer to a removal."""
        self._check_generation(request)
        entries = self._since_first(request)
        self._history.check(request, was_in, entries)
        if was_in and all(entry.counts[request.item] != MOST_COUNTED for entry in entries):
            self._take(request, new=False)
        self._check_once(request)

    def _check_once(self, request: Request) -> None:
        """Check that an answered request, with the one that it retries, counted once.

        A client's retry after the receipt is gone may count twice.
        """
        now, clock = self._clocks()
        if self._history.is_excused(request) or now - request.now > RECEIPT_SECONDS:
            return
        live = [each for each in self._history.live(request.item) if each.verb == request.verb]
        own = [each for each in live if each.claimants == [request] and each.taken is None]
        if own:
            raise Violation("counted twice", f"{request} counted more than once")
        token = request.earlier
        if token is None or not self._history.is_owed(token, now, clock) or token.ended >= request.started:
            return
        if not any(each.claimants == [request] for each in live):
            return
        for change in live:
            alone = set(change.claimants) == {token} and change.taken is None
            if alone and not (self._has_rival(change, request) or self._was_told(change, token)):
                raise Violation(
                    "counted again", f"{request} counted, and {token}, whose token it has, did too"
                )

    def _was_told(self, change: Change, token: Request) -> bool:
        """Return whether a call without a token may have got the answer: one of the two should be used."""
        return any(
            each.earlier is None
            and each.state == "answered"
            and each.ended > token.ended
            and each.verb == change.verb
            and self._may_take(change, each)
            for each in self._history.requests[change.item]
        )

    def unknown(self, request: Request) -> None:
        """Check that an executed call with an unknown outcome left a token.

        A call whose token is too old raises a final error.
        """
        now, _ = self._clocks()
        if not request.owner.retry_safe:
            return
        if request.earlier is not None and now - request.earlier.now > TOKEN_SECONDS:
            return
        for change in self._history.live(request.item):
            if (
                change.verb == request.verb
                and request in change.claimants
                and not (change.taken or request.token)
            ):
                raise Violation(
                    "no token", f"{request} was executed, and its OutcomeUnknownError has no token"
                )

    # -- asking

    def asked(self, request: Request, *, there: bool) -> None:
        """Check the answer to a test."""
        if there or not self._may_miss(request):
            self._check_generation(request)
        self._check_presence(request, answer=there)

    def missing(self, request: Request) -> None:
        """Check that a call that needs a filter has found none, and that its object had used none."""
        if not self._may_miss(request):
            raise Violation("missing, and it was there", f"{request} found no filter")

    def _may_miss(self, request: Request) -> bool:
        """Return whether there was no filter for a time during a call, and its object had to know none."""
        is_new = request.was_fresh or request.is_beside or request.owner.may_open or request.owner.recreates
        return is_new and any(entry.generation is None for entry in self._history.window(request))

    def loaded(self, request: Request) -> None:
        """Check that an item of a load was in at its end or at some time during it.

        A load gives all answers that its own call got; in a counting filter, those of the calls that it
        retries.
        """
        self._check_generation(request)
        entries = self._since_first(request) if self._counts else self._history.window(request)
        self._history.check(request, None, entries)
        for change in self._history.live(request.item):
            if request in change.claimants and change.taken is None:
                change.taken = request

    def full(self, request: Request, capacity: int) -> None:
        """Check that a call refused because the filter is full found it so, and has added nothing.

        Tasks share calls, so the executed call may be for any waiting task; the answer tells which.  A load
        may have added some items: its caller repeats it.  The claims of a batch take the room that is left.
        """
        if request.is_load:
            return
        changes = self._history.live(request.item)
        if any(request in each.claimants and each.taken in (None, request) for each in changes):
            raise Violation("added though full", f"{request} raised FilterFullError, and added the item")
        if any(each.is_load for requests in self._history.requests for each in requests):
            return  # a load counts its items before it writes them, and two loads may count the same items
        place = request.ref.partition("/")[2]
        claimed = int(place) if request.verb == "claim" and place else 0
        if all(sum(map(bool, entry.counts)) + claimed < capacity for entry in self._history.window(request)):
            raise Violation("refused with room", f"{request} raised FilterFullError, and there was room")

    # -- opening

    def created(self, request: Request) -> None:
        """Check that an object did not create or check a filter in place of one that it had lost.

        What another call has opened meanwhile is checked by the next call.
        """
        if not request.got_beside:
            self._check_generation(request)

    def acknowledged(self, request: Request, *, had_lost: bool) -> None:
        """Check the answer of an acknowledgement, and that the filter which it leaves is marked."""
        given = request.opened and request.opened[1]
        none = not had_lost and any(each.generation is None for each in self._history.window(request))
        if given is not None and self._marks and not none and given not in self._history.acknowledged:
            raise Violation("not acknowledged", f"{request} has left a filter that is not marked")
        if request.knew is None or not request.is_alone or self._history.rolled_back >= 0:
            return
        if had_lost and (not request.knew or request.knew == {given}):
            raise Violation("acknowledged", f"{request} told of a loss, and its object had lost no filter")
        if not had_lost and request.knew and given not in request.knew:
            raise Violation("acknowledged", f"{request} told of no loss, and its object had lost a filter")

    # -- generations

    def _check_generation(self, request: Request) -> None:
        """Check that an object answers only for a generation that it got."""
        owner = request.owner
        is_back = self._history.rolled_back >= request.started
        if request.met_loss and not (owner.recreates or request.is_beside or is_back):
            raise Violation("loss not told", f"{request} was sent for a lost filter, and was answered")
        entries = self._history.window(request, owner.cache_seconds)
        if not owner.recreates and not any(owner.knows(entry.generation, request) for entry in entries):
            raise Violation(
                "silent loss", f"{request} was answered for a filter that the object was not given"
            )

    def lost(self, request: Request) -> None:
        """Check a `FilterLostError`; a load's batch may not fit a filter that was created since."""
        owner = request.owner
        if owner.recreates and not request.is_load:
            raise Violation("lost", f"{request} raised FilterLostError, and on_lost is 'recreate'")
        self._check_going_on(request)
        known = owner.acknowledged
        if known is None or known[0] > request.entry or request.is_beside or self._history.rolled_back >= 0:
            return
        loads = (each for requests in self._history.requests for each in requests if each.is_load)
        if not _refuses(request) and any(map(_refuses, loads)):
            return  # a load took a part of its count back, which looks like an older copy
        if all(entry.generation == known[1] for entry in self._history.log[known[0] :]):
            raise Violation(
                "no loss", f"{request} raised FilterLostError, and the filter was there all the time"
            )

    def _check_going_on(self, request: Request) -> None:
        """Check that an object that has raised a loss goes on with a filter that was marked since.

        If another call of the object has got a third filter meanwhile, this may be the loss of that one.
        """
        stored = {entry.generation for entry in self._history.window(request)}
        marked = self._history.acknowledged.get(next(iter(stored)), self._history.step)
        if (
            request.was_told
            and request.met_loss is None
            and not request.is_beside
            and len(stored) == 1
            and all(generation in stored for _, generation in request.got_beside)
            and marked < request.started
            and self._history.rolled_back < 0
        ):
            raise Violation("not going on", f"{request} raised FilterLostError for an acknowledged loss")


def _follows_equal(request: Request, change: Change) -> bool:
    """Return whether an equal item comes earlier in the batch: if one was new, it was that one."""
    before = change.claimants[: change.claimants.index(request)]
    return any(each.ref.partition("/")[0] == request.ref.partition("/")[0] for each in before)


def _refuses(request: Request) -> bool:
    """Return whether the object of a call refuses new items of a full filter."""
    return bool(request.owner.options.get("on_full") == "raise")
