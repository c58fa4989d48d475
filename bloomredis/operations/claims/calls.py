"""The script calls of claims: a worker claims an item, works on it, and then adds it to the filter.

A claim is a key of its own in the filter's hash slot.  It names the owner, and expires with the lease.  One
script decides whether an item is done, held by another worker or free.  One script commits: it sets the
item's bits and deletes the claim, or does neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import takewhile
from typing import Final, TypeVar

from mmh3 import hash_bytes

from bloomredis.arguments import shown
from bloomredis.errors import ClaimLostError
from bloomredis.operations.claims.patience import call_each, retry_until_leases_end
from bloomredis.operations.claims.state import (
    ClaimOptions,
    ClaimState,
    ClaimStatus,
    claim_states,
    is_late,
)
from bloomredis.operations.items.outcomes import raise_interrupted
from bloomredis.protocol import clock, forms, scripts
from bloomredis.protocol.calls import call
from bloomredis.protocol.clock import next_round
from bloomredis.protocol.keys import as_bytes, auxiliary_prefix
from bloomredis.protocol.pending import PendingCalls
from bloomredis.protocol.receipts import Sessions, give_back
from bloomredis.protocol.replies import OutcomeMatters, Refusal, claims_of, failed, is_used_by_clone
from bloomredis.protocol.steps import Op, Part
from bloomredis.stored.state.base import Stored
from bloomredis.stored.state.claim_calls import MOST_CLAIMS, ClaimCall, CommitCall
from bloomredis.stored.state.handle import Handle, LayoutChanged

C = TypeVar("C")
R = TypeVar("R")

_CLAIM, _COMMIT = scripts.load_script("claim"), scripts.load_script("commit")
_RELEASE, _EXTEND = (scripts.load_script(verb, forms.integer) for verb in ("release", "extend"))
_DENIED, _COMMITTED, _DONE = 0, 1, 2
"""The replies to a commit; `_DONE` if the claim is gone and the item is in the filter."""

_AGAIN: Final = "a second call on the same object answers as this one would have"


class Claims:
    """The claims of one filter object."""

    def __init__(
        self,
        stored: Stored,
        sessions: Sessions,
        pending: PendingCalls,
        *,
        retry_safe: bool,
    ) -> None:
        self._stored = stored
        self._sessions = sessions
        self._pending = pending
        self._outcome_matters = OutcomeMatters(stored.name, _AGAIN)
        self._retry_safe = retry_safe
        self._prefix = auxiliary_prefix(stored.key) + b"claim:"

    def _key(self, encoded: str | bytes) -> bytes:
        """Return the key of the claim on an item."""
        return self._prefix + hash_bytes(encoded).hex().encode()

    def claim(
        self, encoded: bytes, item: object, options: ClaimOptions, make: Callable[[ClaimState], C]
    ) -> Op[C]:
        """Claim an item; return `make(state)`."""
        rounds = None
        while True:
            handle = self._stored.handle or (yield from self._stored.open())
            packed = handle.layout.pack_one(encoded)
            try:
                (state,) = yield from self._claim(handle, (encoded,), (item,), packed, options)
            except LayoutChanged:
                rounds = yield from next_round(rounds, self._stored.name, len(handle.extra))
            else:
                return make(state)

    def claim_many(
        self,
        encoded: Sequence[str | bytes],
        items: Sequence[object],
        options: ClaimOptions,
        make: Callable[[ClaimState], C],
    ) -> Op[list[C]]:
        """Claim encoded items, in one or more scripts; equal items share one claim."""
        own, places = _distinct(encoded)
        claims: list[ClaimState] = []
        try:
            yield from self._claim_each([encoded[i] for i in own], [items[i] for i in own], options, claims)
        except Exception as error:
            raise_interrupted("claim_many", _in_place(claims, places, make), items, error)
        except BaseException:  # the caller was cancelled or interrupted
            for state in claims:
                self.claim_again(state)
            raise
        return _in_place(claims, places, make)

    def _claim_each(
        self,
        encoded: Sequence[str | bytes],
        items: Sequence[object],
        options: ClaimOptions,
        claims: list[ClaimState],
    ) -> Op[None]:
        """Claim different items, and append the claims."""
        rounds = None
        while len(claims) < len(items):
            handle = yield from self._stored.acquire()
            run = slice(len(claims), len(claims) + min(MOST_CLAIMS, handle.items))
            packed = handle.layout.pack(encoded[run])
            try:
                claims += yield from self._claim(handle, encoded[run], items[run], packed, options)
            except LayoutChanged:
                rounds = yield from next_round(rounds, self._stored.name, len(handle.extra) + len(claims))

    def _claim(
        self,
        handle: Handle,
        encoded: Sequence[str | bytes],
        items: Sequence[object],
        packed: bytes,
        options: ClaimOptions,
    ) -> Op[list[ClaimState]]:
        """Claim packed items in one script; the owners of pending claims are used again."""
        keys, pending = list(map(self._key, encoded)), self._pending
        owners = [
            (pending.owners and pending.checkout_owners(key + options.holder))
            or [options.new_owner(self._sessions)]
            for key in keys
        ]
        tried = [own[0] for own in owners]
        arguments: list[Part] = [packed, options.lease, b"".join(tried)]
        if options.replaced:
            arguments.append(options.replaced)
        try:
            with self._outcome_matters:
                for _ in range(2):
                    sent = clock.now()
                    reply = yield from self._stored.run(_CLAIM, handle, arguments, keys, kind=ClaimCall)
                    answers, busy = claims_of(reply, len(keys), is_capped=handle.is_capped)
                    if "c" not in answers or not is_late(sent, options.lease):
                        break
        except BaseException:  # even after a refusal, an earlier attempt may have claimed the item
            for key, own in zip(keys, owners, strict=True):
                pending.store_owners(key + options.holder, own)
            raise
        for at in range(len(answers), len(keys)):  # the filter is full
            pending.store_owners(keys[at] + options.holder, owners[at])
        values = [handle.generation + owner for owner in tried]
        claims = claim_states(answers, busy, options, sent, zip(items, encoded, values, strict=True))
        if busy:
            yield from self._claim_busy(handle, owners, claims, options)
        return claims

    def _claim_busy(
        self,
        handle: Handle,
        owners: Sequence[list[bytes]],
        claims: list[ClaimState],
        options: ClaimOptions,
    ) -> Op[None]:
        """Claim busy items again whose holder may be this one; replace their claims in the list.

        Another pending call of this object may hold the item: then its owner is used.  An earlier run of the
        same work may hold it: then its claim is replaced, if it is still the same; else the item is claimed
        once more.
        """
        busy = [i for i, state in enumerate(claims) if state.status == "busy"]
        last = [i for i in busy if len(owners[i]) == 1]
        others = [i for i in busy if len(owners[i]) > 1]
        if others:
            yield from self._claim_once_more(handle, others, owners, claims, options._replace(replaced=None))
        if options.replaced is None:
            last = [i for i in last if claims[i].is_replaceable]
        if last and options.replaced != b"":
            held = b"" if options.replaced else b"".join([claims[i].held for i in last])
            yield from self._claim_once_more(handle, last, owners, claims, options._replace(replaced=held))

    def _claim_once_more(
        self,
        handle: Handle,
        indexes: Sequence[int],
        owners: Sequence[list[bytes]],
        claims: list[ClaimState],
        options: ClaimOptions,
    ) -> Op[None]:
        """Claim items again, with their next owners if any; replace the claims at these indexes."""
        encoded = [claims[i].encoded for i in indexes]
        items = [claims[i].item for i in indexes]
        packed = handle.layout.pack(encoded)
        for i in indexes:
            self._pending.store_owners(
                self._key(claims[i].encoded) + options.holder, owners[i][1:] or owners[i]
            )
        try:
            again = yield from self._claim(handle, encoded, items, packed, options)
        except BaseException:
            for state in claims:
                self.claim_again(state)
            raise
        for i, state in zip(indexes, again, strict=True):
            claims[i] = state

    def commit(self, state: ClaimState) -> Op[None]:
        """Add the item to the filter and end the claim."""
        if state.status == "done":
            return
        state.loss_unreported = False
        if state.session is None:  # a pending commit may be retried whatever the state is by now
            self._check(state)
        state.end()
        yield from self._stored.attempt(partial(self._commit, state=state))

    def _commit(self, handle: Handle, state: ClaimState) -> Op[None]:
        stored, item = self._stored, state.encoded
        packed = handle.layout.pack_one(item)
        if not state.value.startswith(handle.generation):
            # The filter was replaced after the claim.  Or the claim is on the new filter and came as a token,
            # and this object still knows the old filter.
            (is_done,) = yield from stored.test(handle, (item,), packed)
            state.session = None  # the result of a pending commit is gone with its filter
            raise self._lost(state, is_done=is_done)
        keys, arguments = [self._key(item)], [packed, state.owner]
        if self._retry_safe:
            session = state.session_of_commit(self._sessions, handle.check)
            keys.append(session.key)
            arguments.append(session.call.encode())
        try:
            with self._outcome_matters:
                reply = yield from stored.run(
                    _COMMIT, handle, arguments, keys, again=self._retry_safe, kind=CommitCall
                )
                if reply not in (_COMMITTED, _DENIED, _DONE):
                    raise failed(f"{reply!r:.80} is no reply to a commit")
        except Refusal as refusal:
            if not is_used_by_clone(refusal):
                raise
            state.session = None
            if state.status == "done":  # a concurrent commit freed the session; another call uses it
                return
            self._sessions.after_fork()  # a clone of this machine or process has used it
            raise LayoutChanged from refusal
        # The order matters: a thread may be interrupted between any two steps, and a session has one owner.
        state.status = "done" if reply == _COMMITTED else "lost"
        used, state.session = state.session, None
        if used is not None:
            give_back(used)
        if reply != _COMMITTED:
            raise self._lost(state, is_done=reply == _DONE)

    def release(self, state: ClaimState) -> Op[None]:
        """Release the item; nothing happens if it is not held any more."""
        if state.status == "claimed":
            state.end()
            yield from self._call(_RELEASE, [self._key(state.encoded)], state, [])
            state.status, state.session = "released", None  # a pending commit is not retried

    def extend(self, state: ClaimState, lease: int) -> Op[None]:
        """Hold the item for `lease` ms from now."""
        self._check(state)
        if not (yield from self._extended(state, lease)):
            raise self._lost(state)

    def renew_lease(self, state: ClaimState) -> Op[None]:
        """Let the lease last its full length from now, unless the commit or release has begun."""
        if state.is_renewable:
            is_held = yield from self._extended(state, state.lease)
            if not is_held and state.is_renewable:
                state.loss_unreported = True
                raise self._lost(state)

    def _extended(self, state: ClaimState, lease: int) -> Op[bool]:
        keys = [self._key(state.encoded)]
        if self._stored.has_layers:
            keys.append(self._stored.key)
        for _ in range(2):
            sent = clock.now()
            if (yield from self._call(_EXTEND, keys, state, [lease])) != 1:
                return False
            state.prolong(lease, sent)
            if not is_late(sent, lease):
                break
        return True

    def claim_again(self, state: ClaimState) -> None:
        """Let the next claim of the item return this one."""
        if state.status == "claimed":
            self._pending.store_owners(self._key(state.encoded) + state.holder, [state.owner])

    def _call(
        self, script: scripts.Script[R], keys: list[bytes], state: ClaimState, arguments: list[int]
    ) -> Op[R]:
        with self._outcome_matters:
            return (yield from call(script, keys, [state.value, *arguments], self._stored.wait))

    def _check(self, state: ClaimState) -> None:
        if state.status == "lost":
            raise self._lost(state)
        if state.status != "claimed":
            raise ClaimLostError(
                f"{shown(state.item)} is not held by this worker: its state is {state.status!r}",
                advice="test the claim first: if claim: ...",
            )

    def _lost(self, state: ClaimState, *, is_done: bool = False) -> ClaimLostError:
        state.status = "lost"
        now = "the item is done already" if is_done else "another worker may have it"
        return ClaimLostError(
            f"the claim on {shown(state.item)} is over, and {now}: its lease ended, its owner claimed it "
            "again, or its filter was cleared; nothing was changed",
            advice="take a longer lease, or renew=True",
        )


def _distinct(encoded: Iterable[str | bytes]) -> tuple[list[int], list[int]]:
    """Return the distinct items, and for each item its position among them.

    A distinct item is given by the index at which it first occurs.
    """
    found: dict[bytes, int] = {}
    indexes: list[int] = []
    places = []
    for i, code in enumerate(encoded):
        place = found.setdefault(as_bytes(code), len(indexes))
        places.append(place)
        if place == len(indexes):
            indexes.append(i)
    return indexes, places


def _in_place(
    claims: Sequence[ClaimState], places: Iterable[int], make: Callable[[ClaimState], C]
) -> list[C]:
    """Return the claim for each item, up to the first item without one; equal items share a claim."""
    made = list(map(make, claims))
    return [made[place] for place in takewhile(lambda place: place < len(made), places)]


def each_of(
    verb: str,
    claims: Sequence[object],
    states: Sequence[ClaimState],
    call: Callable[[ClaimState], Op[None]],
    known: set[str],
    *,
    patient: bool = False,
) -> Op[list[ClaimStatus]]:
    """Make a call for each claim, all in one round trip; return the state of each afterwards.

    A claim that is not held keeps its state.

    :param claims: the caller's objects, for the error of an interrupted batch.
    :param patient: the calls are commits, and are retried until their leases end.
    :param known: the verbs of earlier batches.  The first batch of a verb makes its first call alone, so that
        a server that lacks the script gets it once, not with each claim.
    """
    distinct = sorted(
        {id(state): state for state in states}.values(), key=lambda state: state.status != "claimed"
    )
    alone = int(verb not in known and bool(distinct) and distinct[0].status == "claimed")
    outcomes = yield from call_each(distinct[:alone], call)
    outcomes += yield from call_each(distinct[alone:], call)
    known.update([verb] * alone)
    if patient:
        outcomes = yield from retry_until_leases_end(distinct, call, outcomes)
    failed = {
        id(state): outcome
        for state, outcome in zip(distinct, outcomes, strict=True)
        if outcome is not None and not isinstance(outcome, ClaimLostError)
    }
    answered = list(takewhile(lambda state: id(state) not in failed, states))
    statuses = [state.status for state in answered]
    if failed:
        raise_interrupted(verb, statuses, claims, failed[id(states[len(statuses)])])
    return statuses
