"""Holes that have been mended, and can be opened again: checkers have to find them.

Each takes one safeguard out of the library; `patch` puts an attribute in the place of another, as setattr
does.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from bloomredis.errors import FilterNotFoundError, OutcomeUnknownError, ServerRefusedError
from bloomredis.operations.claims.state import Terms
from bloomredis.operations.items import local_cache, membership, outcomes
from bloomredis.operations.items.local_cache import CachedMembership
from bloomredis.protocol import scripts
from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.pending import PendingCalls
from bloomredis.protocol.receipts import Lane, Lanes, Pending
from bloomredis.protocol.replies import Refusal
from bloomredis.stored.state.versioned import Versioned
from tests.support.holes_of_many import HOLES_OF_MANY, Patch
from tests.support.holes_of_rebuilding import HOLES_OF_REBUILDING

_RECALL: Final = "local function recall(receipt, number)\n"


def _survives_a_fork(patch: Patch, kind: Any, marker: str) -> None:
    renew = kind.renew
    patch(kind, "renew", lambda self: None if hasattr(self, marker) else renew(self))


def _lanes_survive_a_fork(patch: Patch) -> None:
    """A forked child goes on in the lanes of its parent."""
    _survives_a_fork(patch, Lanes, "free")


def _debts_survive_a_fork(patch: Patch) -> None:
    """What a parent is owed is its children's too."""
    _survives_a_fork(patch, PendingCalls, "items")


def _receipts_answer_other_calls(patch: Patch) -> None:
    """A receipt is found by the number of the call alone."""

    def next_call(lane: Lane, _: int) -> str:
        lane.calls += 1
        lane.call = f"{lane.calls}.00000000"
        return lane.call

    patch(Lane, "next_call", next_call)


def _lanes_are_not_bound(patch: Patch) -> None:
    """Both: lanes as they were at first."""
    _lanes_survive_a_fork(patch)
    _receipts_answer_other_calls(patch)


def _a_refusal_proves_that_nothing_was_done(patch: Patch) -> None:
    """A call that was refused is taken for not executed."""
    original = outcomes.is_not_executed

    def is_not_executed(error: BaseException) -> bool:
        return isinstance(error, ServerRefusedError) or original(error)

    patch(membership, "is_not_executed", is_not_executed)


def _answers_are_not_kept(patch: Patch) -> None:
    """An answer that came when nobody was there to receive it is dropped."""
    _only_batches_keep_nothing(patch)
    patch(PendingCalls, "store_answer", lambda *_, **__: None)


def _only_batches_keep_nothing(patch: Patch) -> None:
    """The same in a batch whose call was shared."""
    patch(outcomes.Answers, "keep", lambda *_: None)


def _pending_answers_survive_the_filter(patch: Patch) -> None:
    """What is pending is answered for another generation too."""
    pending: Any = PendingCalls
    add, store_answer, find = pending.add, pending.store_answer, pending.find
    checkout, split_runs = pending.checkout, pending.split_runs
    patch(
        pending,
        "add",
        lambda self, items, lane, call, _, *rest, **late: add(self, items, lane, call, b"", *rest, **late),
    )
    patch(
        pending, "store_answer", lambda self, item, _, *, answer: store_answer(self, item, b"", answer=answer)
    )
    patch(pending, "find", lambda self, item, _: find(self, item, b""))
    patch(pending, "checkout", lambda self, item, _, token: checkout(self, item, b"", token))
    patch(
        pending,
        "split_runs",
        lambda self, items, start, stop, most, _: split_runs(self, items, start, stop, most, b""),
    )


def _nothing_is_pending(patch: Patch) -> None:
    """The object forgets what is owed."""
    patch(PendingCalls, "find", lambda *_: None)


def _equal_items_share_a_token(patch: Patch) -> None:
    """Of a batch each item gets the token of the last that is equal."""
    add: Any = PendingCalls.add

    def added(self: PendingCalls, items: Sequence[str | bytes], *call: Any, **late: Any) -> list[Pending]:
        add(self, items, *call, **late)
        return [self.items[as_bytes(item)][-1] for item in items]

    patch(PendingCalls, "add", added)


class _NewestCopy:
    """The copy of the filter that is known now, whenever it is used."""

    def __init__(self, cache: Any) -> None:
        self.__dict__["cache"] = cache

    def _copy(self) -> Any:
        cache = self.__dict__["cache"]
        handle = cache._stored.handle
        if handle is not None and cache._copy.handle is not handle:
            cache._copy = local_cache._Copy(handle)
        return cache._copy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._copy(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._copy(), name, value)


def _the_cache_learns_for_the_newest(patch: Patch) -> None:
    """The local cache learns an answer for the filter that is known when it arrives."""
    refreshed: Any = CachedMembership._refreshed

    def newest(self: CachedMembership, handle: Any) -> Any:
        yield from refreshed(self, handle)
        return _NewestCopy(self)

    patch(CachedMembership, "_refreshed", newest)


def _the_cache_answers_for_any(patch: Patch) -> None:
    """The local cache answers whatever filter it is a copy of."""

    def has(self: Any, encoded: bytes) -> bool:
        copy = self._copy
        is_fresh = copy is not None and vars(local_cache)["clock"].now() < copy.until
        return is_fresh and encoded not in self._pending.items and copy.bits.has(encoded)

    patch(CachedMembership, "has", has)


def _receipts_are_ignored(patch: Patch) -> None:
    """A call that is sent again is executed again; this hole stays open."""
    variants = [
        (verb, variant)
        for verb in scripts.verbs()
        for variant in ({}, {"layered": True}, {"layered": False}, {"module": True})
    ]
    load: Any = scripts.load
    before = {load(verb, **variant).sha: (verb, variant) for verb, variant in variants}
    parts = scripts._sources(readable=False)[1]
    ignoring = parts["lane"].replace(_RECALL, f"{_RECALL}if true then return nil, false end\n")
    if ignoring == parts["lane"]:
        raise RuntimeError("the scripts find receipts in another way by now")
    parts["lane"] = ignoring
    for script in [each for each in gc.get_objects() if isinstance(each, scripts.Script)]:
        verb, variant = before[script.sha]
        made = load.__wrapped__(verb, **variant)
        for name in ("text", "sha"):
            object.__setattr__(script, name, getattr(made, name))


def _claims_are_not_pending(patch: Patch) -> None:
    """A claim without an answer is forgotten by its object, and so is one that did not reach its caller."""
    patch(PendingCalls, "store_owners", lambda *_: None)


def _claims_of_a_name_have_no_time(patch: Patch) -> None:
    """A late copy of a claim takes the item from a later one by the same name."""
    new_owner = Terms.new_owner

    def timeless(self: Terms) -> bytes:
        owner = new_owner(self)
        return self.holder + bytes(6) + owner[-2:] if self.holder else owner

    patch(Terms, "new_owner", timeless)


def _claims_of_a_name_are_one(patch: Patch) -> None:
    """All claims by a name are one and the same: a late copy of an end of one ends the next."""
    new_owner = Terms.new_owner
    patch(Terms, "new_owner", lambda self: self.holder + bytes(8) if self.holder else new_owner(self))


def _clones_share_names(patch: Patch) -> None:
    """The name of a call says only its number in its lane, and what it is about."""

    def next_call(lane: Lane, check: int) -> str:
        lane.calls += 1
        lane.call = f"{lane.calls}.{check & 0xFFFFFFFF:08x}"
        return lane.call

    patch(Lane, "next_call", next_call)


def _what_cannot_be_known_is_forgotten(patch: Patch) -> None:
    """Who asks once more after the error that says so is answered as if nothing had been asked before."""
    checkout: Any = PendingCalls.checkout

    @contextmanager
    def taken(self: PendingCalls, encoded: str | bytes, *rest: Any) -> Iterator[list[Pending]]:
        try:
            with checkout(self, encoded, *rest) as calls:
                yield calls
        except OutcomeUnknownError as error:
            if error.final:
                self.items.pop(as_bytes(encoded), None)
            raise

    patch(PendingCalls, "checkout", taken)


def _looks_are_not_compared(patch: Patch) -> None:
    """A look at what is stored that is late is taken for a loss of what the object knows by now."""

    def watched(self: Versioned[Any], look: Callable[[Any], Any]) -> Any:
        handle = yield from self.acquire()
        try:
            return (yield from look(handle))
        except (Refusal, FilterNotFoundError) as error:
            yield from self._reopen(str(error), self.handle or handle)
            return (yield from self._watched(look))

    patch(Versioned, "_watched", watched)


HOLES: Final[dict[str, Callable[[Patch], None]]] = {
    "lanes-survive-fork": _lanes_survive_a_fork,
    "debts-survive-fork": _debts_survive_a_fork,
    "receipts-of-others": _receipts_answer_other_calls,
    "lanes-not-bound": _lanes_are_not_bound,
    "refusal-proves": _a_refusal_proves_that_nothing_was_done,
    "answers-not-kept": _answers_are_not_kept,
    "batches-not-kept": _only_batches_keep_nothing,
    "generations-ignored": _pending_answers_survive_the_filter,
    "nothing-pending": _nothing_is_pending,
    "tokens-shared": _equal_items_share_a_token,
    "cache-learns-for-newest": _the_cache_learns_for_the_newest,
    "cache-answers-for-any": _the_cache_answers_for_any,
    "receipts-ignored": _receipts_are_ignored,
    "claims-not-pending": _claims_are_not_pending,
    "claims-without-time": _claims_of_a_name_have_no_time,
    "claims-without-number": _claims_of_a_name_are_one,
    "names-not-own": _clones_share_names,
    "final-forgotten": _what_cannot_be_known_is_forgotten,
    "looks-not-compared": _looks_are_not_compared,
    **HOLES_OF_MANY,
    **HOLES_OF_REBUILDING,
}


def open_holes(names: Iterable[str]) -> None:
    """Open some in this process, for good."""
    for name in names:
        HOLES[name](setattr)
