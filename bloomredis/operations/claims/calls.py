"""Claims: a worker holds an item while it works on it; check and set in two steps.

A claim is a key of its own in the filter's hash slot, which names the owner and expires with the
lease.  Whether an item is done, held by another worker or free is decided in one script, and so is a
commit: the item's bits are set and its claim is dropped together, or neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Final, TypeVar

from mmh3 import hash_bytes

from bloomredis.arguments import shown
from bloomredis.errors import ClaimLostError, ConnectionFailedError
from bloomredis.operations.claims.state import Held, State, Terms, answered
from bloomredis.operations.items.outcomes import raise_interrupted
from bloomredis.protocol import clock, forms, scripts
from bloomredis.protocol.calls import call
from bloomredis.protocol.keys import as_bytes, auxiliary_prefix
from bloomredis.protocol.pending import PendingCalls
from bloomredis.protocol.receipts import Lanes, give_back
from bloomredis.protocol.replies import OutcomeMatters, Refusal, claims_of, is_used_by_clone
from bloomredis.protocol.steps import Op
from bloomredis.stored.state.base import Stored
from bloomredis.stored.state.claim_calls import MOST_CLAIMS, ClaimCall, CommitCall
from bloomredis.stored.state.handle import Handle, LayoutChanged

C = TypeVar("C")
R = TypeVar("R")

_CLAIM, _COMMIT = scripts.load("claim"), scripts.load("commit")
_RELEASE, _EXTEND = (scripts.load(verb, forms.integer) for verb in ("release", "extend"))
_DENIED, _COMMITTED, _DONE = 0, 1, 2
"""The replies to a commit; the last one if the claim is gone, and the item is done."""

_AGAIN: Final = "a second call on the same object answers as this one would have"


class Claims:
    """The claims that one filter object makes."""

    def __init__(self, stored: Stored, lanes: Lanes, pending: PendingCalls, *, retry_safe: bool) -> None:
        self._stored = stored
        self._lanes = lanes
        self._pending = pending
        self._retry_safe = retry_safe
        self._prefix = auxiliary_prefix(stored.key) + b"claim:"

    def _key(self, encoded: str | bytes) -> bytes:
        """Return the key of the claim on an item."""
        return self._prefix + hash_bytes(encoded).hex().encode()

    def claim(self, encoded: bytes, item: object, terms: Terms, make: Callable[[Held], C]) -> Op[C]:
        """Claim an item; return `make(held)`."""
        while True:
            handle = self._stored.handle or (yield from self._stored.open())
            packed = handle.layout.pack_one(encoded)
            with suppress(LayoutChanged):
                (held,) = yield from self._claim(handle, (encoded,), (item,), packed, terms)
                return make(held)

    def claim_many(
        self, encoded: Sequence[str | bytes], items: Sequence[object], terms: Terms, make: Callable[[Held], C]
    ) -> Op[list[C]]:
        """Claim items, which have been encoded, some in each script; equal ones share their claim."""
        own, places = _distinct(encoded)
        claims: list[Held] = []
        try:
            yield from self._claim_each([encoded[i] for i in own], [items[i] for i in own], terms, claims)
        except Exception as error:
            raise_interrupted("claim_many", _in_place(claims, places, make), items, error)
        except BaseException:  # the caller was cancelled or interrupted
            for held in claims:
                self.claim_again(held)
            raise
        return _in_place(claims, places, make)

    def _claim_each(
        self, encoded: Sequence[str | bytes], items: Sequence[object], terms: Terms, claims: list[Held]
    ) -> Op[None]:
        """Claim different items, and append the claims."""
        while len(claims) < len(items):
            handle = yield from self._stored.acquire()
            run = slice(len(claims), len(claims) + min(MOST_CLAIMS, handle.items))
            packed = handle.layout.pack(encoded[run])
            with suppress(LayoutChanged):
                claims += yield from self._claim(handle, encoded[run], items[run], packed, terms)

    def _claim(
        self,
        handle: Handle,
        encoded: Sequence[str | bytes],
        items: Sequence[object],
        packed: bytes,
        terms: Terms,
    ) -> Op[list[Held]]:
        """Claim packed items in one script; an owner whose call was not answered is used again."""
        keys, pending = list(map(self._key, encoded)), self._pending
        owners = [
            (pending.owners and pending.checkout_owners(key + terms.holder)) or [terms.new_owner()]
            for key in keys
        ]
        tried = [own[0] for own in owners]
        sent = clock.now()
        try:
            with OutcomeMatters(self._stored.name, _AGAIN):
                arguments = (packed, terms.lease, b"".join(tried))
                reply = yield from self._stored.run(_CLAIM, handle, arguments, keys, kind=ClaimCall)
                answers, busy = claims_of(reply, len(keys))
        except BaseException:  # a refusal too says nothing of an earlier sending
            for key, own in zip(keys, owners, strict=True):
                pending.store_owners(key + terms.holder, own)
            raise
        values = [handle.generation + owner for owner in tried]
        claims = answered(answers, busy, terms, sent, zip(items, encoded, values, strict=True))
        left = [i for i, own in enumerate(owners) if len(own) > 1 and claims[i].state == "busy"]
        if left:  # another call of this object may have the claim, and had no answer either
            for i in left:
                pending.store_owners(keys[i] + terms.holder, owners[i][1:])
            yield from self._claim_once_more(handle, left, claims, terms)
        return claims

    def _claim_once_more(
        self, handle: Handle, indexes: Sequence[int], claims: list[Held], terms: Terms
    ) -> Op[None]:
        """Claim items again, with the owners that are left; put the claims where those before were."""
        encoded = [claims[i].encoded for i in indexes]
        items = [claims[i].item for i in indexes]
        try:
            again = yield from self._claim(handle, encoded, items, handle.layout.pack(encoded), terms)
        except BaseException:
            for held in claims:
                self.claim_again(held)
            raise
        for i, held in zip(indexes, again, strict=True):
            claims[i] = held

    def commit(self, held: Held) -> Op[None]:
        """Put the item into the filter and drop the claim."""
        if held.state == "done":
            return
        held.is_unreported = False
        if held.lane is None:  # a call without an answer may be made again, whatever was learnt since
            self._check(held)
        held.end()
        while True:
            handle = self._stored.handle or (yield from self._stored.open())
            with suppress(LayoutChanged):
                return (yield from self._commit(handle, held))

    def _commit(self, handle: Handle, held: Held) -> Op[None]:
        stored, item = self._stored, held.encoded
        packed = handle.layout.pack_one(item)
        if not held.value.startswith(handle.generation):
            # Its filter is gone, or this object, which was given the claim's token, is behind it.
            (is_done,) = yield from stored.test(stored.template(handle), (item,), packed)
            held.lane = None  # what an earlier call of it did is gone with its filter
            raise self._lost(held, is_done=is_done)
        keys, arguments = [self._key(item)], [packed, held.owner]
        if self._retry_safe:
            lane = held.lane_of_commit(self._lanes, handle.check)
            keys.append(lane.key)
            arguments.append(lane.call.encode())
        try:
            with OutcomeMatters(stored.name, _AGAIN):
                reply = yield from stored.run(
                    _COMMIT, handle, arguments, keys, again=self._retry_safe, kind=CommitCall
                )
                if reply not in (_COMMITTED, _DENIED, _DONE):
                    raise ConnectionFailedError(f"{reply!r:.80} is no reply to a commit")
        except Refusal as refusal:
            if not is_used_by_clone(refusal):
                raise
            held.lane = None
            if held.state == "done":  # another commit of this claim came first, and its lane is used again
                return
            self._lanes.renew()  # a clone of this machine or process has used it
            raise LayoutChanged from refusal
        # In this order, as a thread may be interrupted between any two steps: a lane has one owner.
        held.state = "done" if reply == _COMMITTED else "lost"
        used, held.lane = held.lane, None
        if used is not None:
            give_back(used)
        if reply != _COMMITTED:
            raise self._lost(held, is_done=reply == _DONE)

    def release(self, held: Held) -> Op[None]:
        """Give the item back; nothing happens if it is not held any more."""
        if held.state == "claimed":
            held.end()
            yield from self._call(_RELEASE, [self._key(held.encoded)], held, [])
            held.state, held.lane = "released", None  # a commit without an answer is not made again

    def extend(self, held: Held, lease: int) -> Op[None]:
        """Hold the item for `lease` ms from now."""
        self._check(held)
        if not (yield from self._extended(held, lease)):
            raise self._lost(held)

    def renew_lease(self, held: Held) -> Op[None]:
        """Hold the item for its lease from now, unless its commit or release has begun meanwhile."""
        if held.is_renewable:
            is_held = yield from self._extended(held, held.lease)
            if not is_held and held.is_renewable:
                held.is_unreported = True
                raise self._lost(held)

    def _extended(self, held: Held, lease: int) -> Op[bool]:
        keys, sent = [self._key(held.encoded)], clock.now()
        if self._stored.has_layers:
            keys.append(self._stored.key)
        is_held: bool = (yield from self._call(_EXTEND, keys, held, [lease])) == 1
        if is_held:
            held.prolong(lease, sent)
        return is_held

    def claim_again(self, held: Held) -> None:
        """Let the next claim of the item return this one."""
        if held.state == "claimed":
            self._pending.store_owners(self._key(held.encoded) + held.holder, [held.owner])

    def _call(self, script: scripts.Script[R], keys: list[bytes], held: Held, arguments: list[int]) -> Op[R]:
        with OutcomeMatters(self._stored.name, _AGAIN):
            return (yield from call(script, keys, [held.value, *arguments], self._stored.wait))

    def _check(self, held: Held) -> None:
        if held.state == "lost":
            raise self._lost(held)
        if held.state != "claimed":
            raise ClaimLostError(
                f"{shown(held.item)} is not held by this worker: its state is {held.state!r}"
            )

    def _lost(self, held: Held, *, is_done: bool = False) -> ClaimLostError:
        held.state = "lost"
        now = "the item is done already" if is_done else "another worker may have it"
        return ClaimLostError(
            f"the claim on {shown(held.item)} ran out, its owner claimed it again, or its filter was "
            f"cleared, and {now}; nothing was changed: take a longer lease, or renew=True"
        )


def _distinct(encoded: Iterable[str | bytes]) -> tuple[list[int], list[int]]:
    """Return the indexes of different items, each where it is first, and each item's place in these."""
    found: dict[bytes, int] = {}
    indexes: list[int] = []
    places = []
    for i, code in enumerate(encoded):
        place = found.setdefault(as_bytes(code), len(indexes))
        places.append(place)
        if place == len(indexes):
            indexes.append(i)
    return indexes, places


def _in_place(claims: Sequence[Held], places: Iterable[int], make: Callable[[Held], C]) -> list[C]:
    """Return the claim at each place, up to the first that has none; that of equal items is made once."""
    made = list(map(make, claims))
    return [made[place] for place in takewhile(lambda place: place < len(made), places)]


def each_of(
    verb: str,
    claims: Sequence[object],
    helds: Sequence[Held],
    call: Callable[[Sequence[Held]], Op[list[Exception | None]]],
    known: set[str],
) -> Op[list[State]]:
    """Make a call about claims, all in one round trip; return the state of each afterwards.

    A claim that is not held keeps its state.

    :param claims: the caller's objects, for the error of an interrupted batch.
    :param call: returns the error of each.
    :param known: the verbs of earlier batches.  The first one makes its first call alone, so that a server
        that lacks the script gets it once, and not with each claim.
    """
    distinct = sorted({id(held): held for held in helds}.values(), key=lambda held: held.state != "claimed")
    alone = int(verb not in known and bool(distinct) and distinct[0].state == "claimed")
    outcomes = yield from call(distinct[:alone])
    outcomes += yield from call(distinct[alone:])
    known.update([verb] * alone)
    failed = {
        id(held): outcome
        for held, outcome in zip(distinct, outcomes, strict=True)
        if outcome is not None and not isinstance(outcome, ClaimLostError)
    }
    answered = list(takewhile(lambda held: id(held) not in failed, helds))
    states = [held.state for held in answered]
    if failed:
        raise_interrupted(verb, states, claims, failed[id(helds[len(states)])])
    return states
