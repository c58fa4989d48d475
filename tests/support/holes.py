"""Holes: repaired faults that can be opened again, which checkers must find.

Each removes one safeguard from the library, by private names where it has no other; `patch` replaces an
attribute like setattr.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, Final
from weakref import WeakSet

from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.drivers import renewing
from bloomredis.drivers.sharing import tasks
from bloomredis.drivers.sharing.tasks import Tasks
from bloomredis.errors import FilterLostError, FilterNotFoundError, OutcomeUnknownError, ServerRefusedError
from bloomredis.operations.claims import verbs as claim_verbs
from bloomredis.operations.claims.calls import Claims
from bloomredis.operations.claims.state import ClaimOptions, ClaimState
from bloomredis.operations.items import local_cache, membership
from bloomredis.operations.items.local_cache import CachedMembership
from bloomredis.operations.items.membership import Membership
from bloomredis.operations.kinds import filter as filters
from bloomredis.operations.kinds import layered, sharded
from bloomredis.protocol import cluster, forms, judging, scripts
from bloomredis.protocol.calls import send_command
from bloomredis.protocol.judging import Verdict
from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.pending import Answers, PendingCalls
from bloomredis.protocol.receipts import Pending, Session, Sessions
from bloomredis.protocol.replies import Refusal
from bloomredis.protocol.steps import Call, Outcome
from bloomredis.stored import header
from bloomredis.stored.state import base
from bloomredis.stored.state.knowledge import Knowledge, Record
from bloomredis.stored.state.versioned import Versioned
from tests.support.holes_of_many import HOLES_OF_MANY, Patch


def _survives_a_fork(patch: Patch, kind: Any, marker: str) -> None:
    after_fork = kind.after_fork
    patch(kind, "after_fork", lambda self: None if hasattr(self, marker) else after_fork(self))


def _sessions_survive_a_fork(patch: Patch) -> None:
    """A forked child uses the sessions of its parent."""
    _survives_a_fork(patch, Sessions, "free")


def _debts_survive_a_fork(patch: Patch) -> None:
    """A parent's pending answers are its children's too."""
    _survives_a_fork(patch, PendingCalls, "items")


def _receipts_answer_other_calls(patch: Patch) -> None:
    """A receipt is found only by the number of the call."""

    def next_call(session: Session, _: int) -> str:
        session.calls += 1
        session.call = f"{session.calls}.00000000"
        return session.call

    patch(Session, "next_call", next_call)


def _sessions_are_not_bound(patch: Patch) -> None:
    """Both: sessions in their first form."""
    _sessions_survive_a_fork(patch)
    _receipts_answer_other_calls(patch)


def _a_refusal_proves_that_nothing_was_done(patch: Patch) -> None:
    """A refused call counts as not executed."""

    def judge(call: Call, outcome: Outcome) -> Verdict:
        return Verdict.REFUSED if isinstance(outcome, ServerRefusedError) else judging.judge(call, outcome)

    patch(membership, "judge", judge)


def _the_last_error_judges(patch: Patch) -> None:
    """A call is judged by its last error: no connection after a lost reply counts as never sent."""
    patch(Call, "lose", lambda *_: None)


def _a_cluster_raises_the_last_error(patch: Patch) -> None:
    """The same between the attempts of a cluster client only."""
    patch(cluster, "judge", lambda *_: None)


def _answers_are_not_kept(patch: Patch) -> None:
    """An answer that arrives after its caller left is dropped."""
    _only_batches_keep_nothing(patch)
    patch(PendingCalls, "leave", lambda *_, **__: None)


def _only_batches_keep_nothing(patch: Patch) -> None:
    """The same in a batch whose call was shared."""
    patch(Answers, "leave_some", lambda *_: None)


def _pending_answers_survive_the_filter(patch: Patch) -> None:
    """Pending calls are answered for another generation too."""
    pending: Any = PendingCalls
    add, leave, find = pending.add, pending.leave, pending.find
    checkout, split_runs = pending.checkout, pending.split_runs
    patch(
        pending,
        "add",
        lambda self, items, session, call, _, *rest, **late: add(
            self, items, session, call, b"", *rest, **late
        ),
    )
    patch(pending, "leave", lambda self, item, _, *, answer: leave(self, item, b"", answer=answer))
    patch(pending, "find", lambda self, item, _, *rest: find(self, item, b"", *rest))
    patch(pending, "checkout", lambda self, item, _, *rest: checkout(self, item, b"", *rest))
    patch(
        pending,
        "split_runs",
        lambda self, items, start, stop, most, _: split_runs(self, items, start, stop, most, b""),
    )


def _nothing_is_pending(patch: Patch) -> None:
    """The object forgets its pending calls."""
    patch(PendingCalls, "find", lambda *_: None)


def _equal_items_share_a_token(patch: Patch) -> None:
    """In a batch each item gets the token of the last equal item."""
    add: Any = PendingCalls.add

    def added(self: PendingCalls, items: Sequence[str | bytes], *call: Any, **late: Any) -> list[Pending]:
        add(self, items, *call, **late)
        return [self.items[as_bytes(item)][-1] for item in items]

    patch(PendingCalls, "add", added)


class _NewestCopy:
    """The newest known copy of the filter, whenever it is used."""

    def __init__(self, cache: Any) -> None:
        self.__dict__["cache"] = cache

    def _copy(self) -> Any:
        cache = self.__dict__["cache"]
        handle, copy = cache.stored.handle, cache.copy
        if handle is not None and (copy is None or copy.handle is not handle):
            copy = cache.copy = local_cache._CachedBits(handle)
        return copy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._copy(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._copy(), name, value)


def _the_cache_learns_for_the_newest(patch: Patch) -> None:
    """The local cache adds an answer to the filter that is known when the answer arrives."""
    refreshed: Any = CachedMembership._refreshed

    def newest(self: CachedMembership, handle: Any) -> Any:
        yield from refreshed(self, handle)
        return _NewestCopy(self)

    patch(CachedMembership, "_refreshed", newest)


def _the_cache_answers_for_any(patch: Patch) -> None:
    """The local cache answers whatever filter it is a copy of."""

    def has(self: Any, encoded: bytes) -> bool:
        copy = self.copy
        is_fresh = copy is not None and vars(local_cache)["clock"].now() < copy.answers_until
        return is_fresh and encoded not in self._pending.items and copy.bits.has(encoded)

    patch(CachedMembership, "has", has)


def _receipts_are_ignored(patch: Patch) -> None:
    """A retried call is executed again; this hole stays open."""
    pieces = scripts.sources().pieces
    reading = pieces[scripts.COMMON, "read_receipt"]
    if "local answered = " not in reading:
        raise RuntimeError("the scripts find receipts in another way by now")
    pieces[scripts.COMMON, "read_receipt"] = f"{reading}answered = false\n"
    for script in [each for each in gc.get_objects() if isinstance(each, scripts.Script)]:
        for name in ("text", "sha"):
            vars(script).pop(name, None)


def _claims_are_not_pending(patch: Patch) -> None:
    """An object forgets a claim without an answer, and one that did not reach its caller."""
    patch(PendingCalls, "store_owners", lambda *_: None)
    patch(ClaimState, "leave", lambda _: None)


def _shared_claims_are_not_kept(patch: Patch) -> None:
    """A claim that a batch has made for a caller who has left is forgotten."""
    for name in ("leave", "__del__"):
        patch(ClaimState, name, lambda _: None)


def _shared_owners_are_new(patch: Patch) -> None:
    """A claim in a batch does not use the owner of a pending claim."""
    patch(Claims, "_take_owners", lambda *_: None)


def _claims_of_a_name_have_no_order(patch: Patch) -> None:
    """A claim takes the item from a later claim of the same object and name."""
    patch(ClaimState, "is_replaceable", ClaimState.is_own)


def _claims_of_a_name_are_one(patch: Patch) -> None:
    """All claims by a name are the same: a late copy of one's end ends the next."""
    new_owners = ClaimOptions.new_owners

    def owners(self: ClaimOptions, sessions: Sessions, count: int) -> list[bytes]:
        return [self.holder + bytes(8)] * count if self.holder else new_owners(self, sessions, count)

    patch(ClaimOptions, "new_owners", owners)


def _clones_share_names(patch: Patch) -> None:
    """A call's name has only its number in its session, and its subject."""

    def next_call(session: Session, check: int) -> str:
        session.calls += 1
        session.call = f"{session.calls}.{check & 0xFFFFFFFF:08x}"
        return session.call

    patch(Session, "next_call", next_call)


def _what_cannot_be_known_is_forgotten(patch: Patch) -> None:
    """A retry after a final error is answered as if no call had come before."""
    put_back: Any = PendingCalls.put_back

    def forgotten(
        self: PendingCalls, encoded: str | bytes, calls: Sequence[Pending], error: BaseException
    ) -> None:
        put_back(self, encoded, calls, error)
        if isinstance(error, OutcomeUnknownError) and error.final:
            self.items.pop(as_bytes(encoded), None)

    patch(PendingCalls, "put_back", forgotten)


def _looks_are_not_compared(patch: Patch) -> None:
    """A late reply about the stored filter counts as a loss of the newer one that the object knows."""

    def watched(self: Versioned[Any], look: Callable[[Any], Any]) -> Any:
        handle = yield from self.acquire()
        try:
            return (yield from look(handle))
        except (Refusal, FilterNotFoundError) as error:
            self._lose(str(error), (self.handle or handle).link)
            return (yield from self._watched(look))

    patch(Versioned, "_watched", watched)


def _begun(patch: Patch, thing: Any, name: str) -> WeakSet[Any]:
    """Return the tasks that have begun to run a coroutine function."""
    run, begun = getattr(thing, name), WeakSet[Any]()

    async def begin(*arguments: Any) -> Any:
        begun.add(asyncio.current_task())
        return await run(*arguments)

    patch(thing, name, begin)
    return begun


def _batches_end_in_their_tasks(patch: Patch) -> None:
    """A batch whose task is cancelled before it begins stays in flight."""
    init, end = Tasks.__init__, Tasks._end
    begun: list[WeakSet[Any]] = []

    def made(self: Tasks, *arguments: Any) -> None:
        init(self, *arguments)
        begun.append(_begun(setattr, self, "_run"))

    def ended(self: Tasks, batch: Any, task: asyncio.Task[Any]) -> None:
        if any(task in each for each in begun):
            end(self, batch, task)

    patch(Tasks, "__init__", made)
    patch(Tasks, "_end", ended)


def _renewals_end_in_their_tasks(patch: Patch) -> None:
    """A renewal whose task is cancelled before it begins is the claim's last."""
    end, begun = renewing._LoopTimer._end, _begun(patch, renewing._LoopTimer, "_renew")

    def ended(self: Any, groups: Any, task: asyncio.Task[Any]) -> None:
        if task in begun:
            end(self, groups, task)

    patch(renewing._LoopTimer, "_end", ended)


def _nobody_is_told(patch: Patch) -> None:
    """A loss that `info` has raised counts as told to the callers."""
    for user in (filters, layered, sharded, claim_verbs):
        patch(user, "untold", lambda work: work)


def _the_gone_are_told(patch: Patch) -> None:
    """A loss that a batch has met counts as told, though all its callers are gone."""
    patch(tasks, "outcome_of", lambda together: together)


def _one_call_is_told(patch: Patch) -> None:
    """Of the calls that were sent for a lost filter, only the first raises the loss."""
    patch(base, "raise_loss_since", lambda _: None)


def _a_loss_is_two_steps(patch: Patch) -> None:
    """The handle of a lost filter is dropped first, and the loss is noted after that."""
    lost = Knowledge.lost

    def lost_in_two(self: Knowledge, since: Record, loss: FilterLostError) -> bool:
        link = since.link
        self.dropped(link)
        is_noted = lost(self, self.now(), loss)
        if is_noted and not self.recreates:
            raise copy(loss)
        return is_noted

    patch(Knowledge, "lost", lost_in_two)


def _answers_have_no_owner(patch: Patch) -> None:
    """An add that is interrupted after its reply leaves no answer behind."""
    patch(Membership, "leave", lambda *_: None)


def _parts_stop_in_silence(patch: Patch) -> None:
    """The exception of a signal that stops a part of a batch of claims reaches nobody."""
    for user in (claim_verbs, sharded):
        patch(user, "unless_failed", list)


def _the_mark_has_no_identity(patch: Patch) -> None:
    """Whatever is stored by now is marked, though its marker has not seen it."""
    mark = Versioned._mark_head

    def mark_what_is_there(self: Any, head: Any) -> Any:
        found = yield from send_command(("GETRANGE", self.key, 0, HEADER_BYTES - 1), forms.data)
        return (yield from mark(self, header.parse(found, head.kind) if found else head))

    patch(Versioned, "_mark_head", mark_what_is_there)


HOLES: Final[dict[str, Callable[[Patch], None]]] = {
    "lanes-survive-fork": _sessions_survive_a_fork,
    "debts-survive-fork": _debts_survive_a_fork,
    "receipts-of-others": _receipts_answer_other_calls,
    "lanes-not-bound": _sessions_are_not_bound,
    "refusal-proves": _a_refusal_proves_that_nothing_was_done,
    "last-error-judges": _the_last_error_judges,
    "last-attempt-of-cluster-judges": _a_cluster_raises_the_last_error,
    "answers-not-kept": _answers_are_not_kept,
    "batches-not-kept": _only_batches_keep_nothing,
    "generations-ignored": _pending_answers_survive_the_filter,
    "nothing-pending": _nothing_is_pending,
    "tokens-shared": _equal_items_share_a_token,
    "cache-learns-for-newest": _the_cache_learns_for_the_newest,
    "cache-answers-for-any": _the_cache_answers_for_any,
    "receipts-ignored": _receipts_are_ignored,
    "claims-not-pending": _claims_are_not_pending,
    "claims-not-kept": _shared_claims_are_not_kept,
    "owners-not-used-again": _shared_owners_are_new,
    "claims-without-order": _claims_of_a_name_have_no_order,
    "claims-without-number": _claims_of_a_name_are_one,
    "names-not-own": _clones_share_names,
    "final-forgotten": _what_cannot_be_known_is_forgotten,
    "looks-not-compared": _looks_are_not_compared,
    "batches-end-in-tasks": _batches_end_in_their_tasks,
    "renewals-end-in-tasks": _renewals_end_in_their_tasks,
    "nobody-is-told": _nobody_is_told,
    "gone-are-told": _the_gone_are_told,
    "one-call-is-told": _one_call_is_told,
    "losses-in-two-steps": _a_loss_is_two_steps,
    "answers-without-owner": _answers_have_no_owner,
    "parts-stop-in-silence": _parts_stop_in_silence,
    "mark-without-identity": _the_mark_has_no_identity,
    **HOLES_OF_MANY,
}


def open_holes(names: Iterable[str]) -> None:
    """Open some in this process permanently."""
    for name in names:
        HOLES[name](setattr)
