"""The script calls of claims: a worker claims an item, works on it, and then adds it to the filter.

A claim is a key of its own in the filter's hash slot.  It names the owner, and expires with the lease.  One
script decides whether an item is done, held by another worker or free.  One script commits: it sets the
item's bits and deletes the claim, or does neither.  Each script takes one item or several.

A method makes one attempt: each of its requests is answered, or keeps the error for which it may be retried
(`patience`).  In the usual case the first reply answers a single request, in one generator.  All else goes to
the method for batches, with the call that was made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from mmh3 import hash_bytes

from bloomredis.bits.layout import Packing
from bloomredis.errors import ClaimLostError
from bloomredis.operations.claims.requests import ClaimRequest
from bloomredis.operations.claims.state import (
    STATUSES,
    ClaimOptions,
    ClaimState,
    busy_until,
    check_held,
    is_late,
    lost_error,
)
from bloomredis.operations.items.outcomes import ON_THE_SAME_OBJECT
from bloomredis.protocol import clock, forms, replies, scripts
from bloomredis.protocol.calls import call
from bloomredis.protocol.clock import next_round
from bloomredis.protocol.pending import PendingCalls
from bloomredis.protocol.receipts import Sessions
from bloomredis.protocol.replies import OutcomeMatters, Refusal, claims_of, failed, is_used_by_clone, text_of
from bloomredis.protocol.steps import Op, Outcome, Part, Reply
from bloomredis.stored.state.base import Stored
from bloomredis.stored.state.handle import Handle, LayoutChanged
from bloomredis.stored.state.item_calls import FilterCall

R = TypeVar("R")

MOST_CLAIMS: Final = 200
"""The most claims in one script; each takes some ten commands."""

_CLAIM, _COMMIT = scripts.load_script("claim"), scripts.load_script("commit")
_RELEASE, _EXTEND = (scripts.load_script(verb, forms.text) for verb in ("release", "extend"))
_COMMITTED, _DONE, _REUSED = "1", "2", "-"
"""Answers to a commit: done by this call; done before, and the claim is gone; its session has gone on."""
_COMMITS: Final = re.compile(f"[0{_COMMITTED}{_DONE}{_REUSED}]+")


class SentClaim(NamedTuple):
    """A call that was made for one claim.

    :ivar sent: the monotonic time before it was sent.
    """

    call: FilterCall[Reply]
    outcome: Outcome
    owner: bytes
    sent: float


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
        self._outcome_matters = OutcomeMatters(stored.name, ON_THE_SAME_OBJECT)
        self._retry_safe = retry_safe
        self._prefix = stored.auxiliary + b"claim:"

    def key(self, encoded: bytes) -> bytes:
        """Return the key of the claim on an item."""
        return self._prefix + hash_bytes(encoded).hex().encode()

    def one(self, request: ClaimRequest) -> Op[ClaimState]:
        """Make an attempt at one request; return the claim, or raise the error."""
        handle, verb, state = self._stored.handle, request.verb, request.state
        request.outcome = None
        try:
            if handle is not None and verb == "claim" and not (self._pending.owners or self._pending.left):
                yield from self._claim_one(handle, request)
            elif (
                handle is not None
                and (verb, state.status) == ("commit", "claimed")
                and state.value.startswith(handle.generation)
            ):
                yield from self._commit_one(handle, request)
            else:
                yield from self.each([request])
        except BaseException:  # a signal's, perhaps: the caller does not get what was answered
            state.leave()
            raise
        return state if request.outcome is state else request.answer()

    def each(self, requests: Sequence[ClaimRequest]) -> Op[None]:
        """Make an attempt at requests of one group about different items, which have no outcome."""
        return _ATTEMPTS[requests[0].verb](self, requests)

    # -- claims

    def _claim_one(self, handle: Handle, request: ClaimRequest) -> Op[None]:
        state, options = request.state, request.options
        packed, (owner,) = _packed_one(handle.layout, state), options.new_owners(self._sessions, 1)
        keys, lease = (self.key(request.encoded),), options.lease
        state.value = handle.generation + owner
        sent = clock.now()
        call = self._stored.call(_CLAIM, handle, (packed, b"%d" % lease, owner), keys)
        outcome: Outcome
        try:
            outcome = yield call
        except BaseException as error:  # includes interruptions
            outcome = error
        try:
            if type(outcome) is bytes and outcome == b"c" and not is_late(sent, lease):
                state.left_to = self._pending.left
                state.status, state.until, request.outcome = "claimed", sent + lease / 1000, state
            else:
                yield from self._claim_run(
                    handle, (request,), packed, options, SentClaim(call, outcome, owner, sent)
                )
        except LayoutChanged:
            yield from self.each([request])
        except BaseException:  # perhaps the caller was interrupted
            self._store_owners(keys, [[owner]], options)
            raise

    def claim(self, requests: Sequence[ClaimRequest]) -> Op[None]:
        """Claim items, in one or more scripts."""

        def claim_some(handle: Handle, left: Sequence[ClaimRequest]) -> Op[None]:
            run = left[: min(MOST_CLAIMS, handle.items)]
            packed, taken = _packed(handle.layout, run), self._taken(requests)
            return self._claim_run(handle, run, packed, requests[0].options, taken=taken)

        return self._until_answered(requests, claim_some)

    def _until_answered(
        self,
        requests: Sequence[ClaimRequest],
        attempt: Callable[[Handle, Sequence[ClaimRequest]], Op[None]],
    ) -> Op[None]:
        """Make attempts until each request has an outcome.

        :param attempt: makes an attempt at some of the requests that are left.
        """
        rounds = None
        while left := [each for each in requests if each.outcome is None]:
            handle = yield from self._stored.acquire()
            try:
                yield from attempt(handle, left)
            except LayoutChanged:
                progress = len(handle.extra) + len(requests) - len(left)
                rounds = yield from next_round(rounds, self._stored.name, progress)

    def _taken(self, requests: Sequence[ClaimRequest]) -> int | None:
        """Return how many claims of a batch are held, if they take the room of the filter."""
        if not (self._stored.refuses and requests[0].fills):
            return None
        return sum(each.outcome is each.state and each.state.status == "claimed" for each in requests)

    def _claim_run(
        self,
        handle: Handle,
        requests: Sequence[ClaimRequest],
        packed: bytes,
        options: ClaimOptions,
        made: SentClaim | None = None,
        *,
        taken: int | None = None,
    ) -> Op[None]:
        """Claim packed items in one script; the owners of pending claims are used again.

        :param taken: the claims that the batch has made before, if they take the room of the filter.
        """
        keys = [self.key(each.encoded) for each in requests]
        owners = (
            [[made.owner]] if made else [[each] for each in options.new_owners(self._sessions, len(keys))]
        )
        try:
            if made is None:
                self._take_owners(keys, owners, options)
            tried = _name_owners(handle, requests, owners)
            arguments = [packed, options.lease, tried, *_further(options, taken)]
            answers, busy, sent = yield from self._send_claims(handle, keys, arguments, options, made)
            self._store_owners(keys[len(answers) :], owners[len(answers) :], options)  # the filter is full
            self._take_answers(requests, answers, busy, sent)
        except BaseException:  # even after a refusal, an earlier attempt may have claimed the item
            try:
                self._leave_unanswered(requests, owners, options)
            except BaseException:  # an interruption
                self._leave_unanswered(requests, owners, options)
                raise
            raise
        if busy:
            yield from self._claim_busy(handle, owners, requests[: len(answers)], options)
        if len(answers) < len(keys):
            yield from self._stored.refused(_no_room(), handle)

    def _send_claims(
        self,
        handle: Handle,
        keys: Sequence[bytes],
        arguments: Sequence[Part],
        options: ClaimOptions,
        made: SentClaim | None,
    ) -> Op[tuple[str, Sequence[str], float]]:
        """Claim in one script, and again if the lease was over when the reply came.

        Return the answers, the busy claims (`claims_of`), and the monotonic time of the sending.
        """
        with self._outcome_matters:
            for _ in range(2):
                if made is None:
                    sent = clock.now()
                    reply = yield from self._stored.run(_CLAIM, handle, arguments, keys)
                else:
                    sent = made.sent
                    reply = yield from self._stored.finish_call(made.call, made.outcome)
                    made = None
                answers, busy = claims_of(reply, len(keys), is_capped=handle.is_capped)
                if "c" not in answers or not is_late(sent, options.lease):
                    break
        return answers, busy, sent

    def _take_answers(
        self, requests: Sequence[ClaimRequest], answers: str, busy: Sequence[str], sent: float
    ) -> None:
        """Record the answers to a call that claims, sent at the monotonic time `sent` (`claims_of`)."""
        left = iter(busy)
        for request, answer in zip(requests, answers, strict=False):
            state, until, held = request.state, sent + request.options.lease / 1000, b""
            if answer == "b":
                until, held = busy_until(next(left), request.options.holder)
            state.left_to = self._pending.left
            state.status, state.until, state.held = STATUSES[answer], until, held
            request.outcome = state

    def _take_owners(
        self, keys: Sequence[bytes], owners: Sequence[list[bytes]], options: ClaimOptions
    ) -> None:
        """Replace the new owners under which to claim items by those of pending claims."""
        if self._pending.has_owners:
            self._pending.store_left(self.key)
            for key, own in zip(keys, owners, strict=True):
                self._pending.checkout_owners(key + options.holder, own)

    def _claim_busy(
        self,
        handle: Handle,
        owners: Sequence[list[bytes]],
        requests: Sequence[ClaimRequest],
        options: ClaimOptions,
    ) -> Op[None]:
        """Claim busy items again whose holder may be this one.

        Another pending call of this object may hold the item: then its owner is used.  An earlier run of the
        same work may hold it: then its claim is replaced, if it is still the same; else the item is claimed
        once more.
        """
        states = [each.state for each in requests]
        busy = [i for i, state in enumerate(states) if state.status == "busy"]
        last = [i for i in busy if len(owners[i]) == 1]
        others = [i for i in busy if len(owners[i]) > 1]
        if others:
            again = options._replace(replaced=None)
            yield from self._claim_once_more(handle, [(requests[i], owners[i][1:]) for i in others], again)
        if options.replaced is None:
            last = [i for i in last if states[i].is_replaceable]
        if last and options.replaced != b"":
            held = b"" if options.replaced else b"".join([states[i].held for i in last])
            again = options._replace(replaced=held)
            yield from self._claim_once_more(handle, [(requests[i], owners[i]) for i in last], again)

    def _claim_once_more(
        self, handle: Handle, busy: Sequence[tuple[ClaimRequest, list[bytes]]], options: ClaimOptions
    ) -> Op[None]:
        """Claim busy items again, each under these owners."""
        for request, owners in busy:
            self._store_owners([self.key(request.encoded)], [owners], options)
            request.outcome = None
        requests = [request for request, _ in busy]
        yield from self._claim_run(handle, requests, _packed(handle.layout, requests), options)

    def _leave_unanswered(
        self, requests: Sequence[ClaimRequest], owners: Sequence[list[bytes]], options: ClaimOptions
    ) -> None:
        """Leave the owners of the requests that got no answer; whoever made the others has their claims."""
        for request, own in zip(requests, owners, strict=True):
            if request.outcome is None:
                self._store_owners([self.key(request.encoded)], [own], options)

    def _store_owners(
        self, keys: Sequence[bytes], owners: Sequence[Sequence[bytes]], options: ClaimOptions
    ) -> None:
        """Let the next claim of each item use these owners of a claim that may have begun by now."""
        for key, own in zip(keys, owners, strict=True):
            self._pending.store_owners(key + options.holder, own, clock.now() + options.lease / 1000)

    # -- commits

    def _commit_one(self, handle: Handle, request: ClaimRequest) -> Op[None]:
        request.state.loss_unreported = False
        call = self._commit_call(handle, (request,), _packed_one(handle.layout, request.state))
        outcome: Outcome
        try:
            outcome = yield call
        except BaseException as error:  # includes interruptions
            outcome = error
        if type(outcome) is int and outcome == 1:
            self._end_commit(request, _COMMITTED)
            return
        try:
            yield from self._committed(call, outcome, (request,))
        except LayoutChanged:
            yield from self.each([request])

    def commit(self, requests: Sequence[ClaimRequest]) -> Op[None]:
        """Add items to the filter and end their claims."""
        for request in _uncommitted(requests):
            request.state.loss_unreported = False
            if request.state.session is None:  # a pending commit may be retried whatever the state is by now
                _check(request)
        return self._until_answered(requests, self._commit_some)

    def _commit_some(self, handle: Handle, left: Sequence[ClaimRequest]) -> Op[None]:
        """Commit claims in one script."""
        ours = yield from self._of_this_filter(handle, _uncommitted(left))
        if requests := ours[: min(MOST_CLAIMS, handle.items)]:
            call = self._commit_call(handle, requests, _packed(handle.layout, requests))
            outcome: Outcome
            try:
                outcome = yield call
            except Exception as error:
                outcome = error
            yield from self._committed(call, outcome, requests)

    def _of_this_filter(self, handle: Handle, requests: Sequence[ClaimRequest]) -> Op[list[ClaimRequest]]:
        """Return the requests whose claims are on the filter of a handle; the others are lost.

        The filter was replaced after the claim.  Or the claim is on the new filter and came as a token, and
        this object still knows the old filter.
        """
        ours = [each for each in requests if each.state.value.startswith(handle.generation)]
        for request in requests if len(ours) < len(requests) else ():
            if request not in ours:
                packed = handle.layout.pack_one(request.encoded)
                (is_done,) = yield from self._stored.test(handle, (request.encoded,), packed)
                state = request.state
                state.session = None  # the result of a pending commit is gone with its filter
                request.outcome = lost_error(state, is_done=is_done)
        return ours

    def _commit_call(
        self, handle: Handle, requests: Sequence[ClaimRequest], packed: bytes
    ) -> FilterCall[Reply]:
        claims, receipts, names, owners = list[bytes](), list[bytes](), list[Part](), b""
        if not handle.is_capped:
            self._stored.note_added(handle, len(requests))
        for request in requests:
            claims.append(self.key(request.encoded))
            owners += request.state.owner
            if self._retry_safe:
                session = request.state.session_of_commit(self._sessions, handle.check)
                receipts.append(session.key)
                names.append(session.call.encode())
        keys, arguments = [*claims, *receipts], [packed, owners, *names]
        return self._stored.call(_COMMIT, handle, arguments, keys, again=self._retry_safe)

    def _committed(
        self, call: FilterCall[Reply], outcome: Outcome, requests: Sequence[ClaimRequest]
    ) -> Op[None]:
        """Take the outcome of a call that commits; raise `LayoutChanged` if some requests are left."""
        try:
            with self._outcome_matters:
                answers = _commits_of((yield from self._stored.finish_call(call, outcome)), len(requests))
        except Refusal as refusal:
            if not is_used_by_clone(refusal):
                raise
            answers = _REUSED
        for request, answer in zip(requests, answers, strict=False):
            self._end_commit(request, answer)
        if answers != _REUSED and len(answers) < len(requests):
            yield from self._stored.refused(_no_room(), call.handle)
        if any(each.outcome is None for each in requests):
            raise LayoutChanged

    def _end_commit(self, request: ClaimRequest, answer: str) -> None:
        state = request.state
        if answer == _REUSED:
            state.session = None
            if state.status == "done":  # a concurrent commit freed the session; another call uses it
                request.outcome = state
            else:  # a clone of this machine or process has used it
                self._sessions.after_fork()
            return
        # The order matters: a thread may be interrupted between any two steps, and a session has one owner.
        if answer == _COMMITTED:
            state.status = "done"
        elif state.status != "done":  # else a call beside this one has committed the claim
            state.status = "lost"
        used, state.session = state.session, None
        if used is not None:
            used.free.append(used)
        is_done = answer == _DONE
        request.outcome = state if state.status == "done" else lost_error(state, is_done=is_done)

    # -- releases and extensions

    def release(self, requests: Sequence[ClaimRequest]) -> Op[None]:
        """Release items; nothing happens for one that is not held any more."""
        held = [each for each in requests if each.state.status == "claimed"]
        answers = (yield from self._call(_RELEASE, held, (), ())) if held else ""
        for request, answer in zip(held, answers, strict=True):
            state = request.state
            # Another call may have ended the claim meanwhile, and a pending commit may have done so before.
            if state.status == "claimed" and (answer == "1" or state.session is None):
                state.status, state.session = "released", None
        for request in requests:
            request.outcome = request.state

    def extend(self, requests: Sequence[ClaimRequest]) -> Op[None]:
        """Hold items for the requests' lease from now on."""
        for request in requests:
            _check(request)
        yield from self._extended([each for each in requests if each.outcome is None])

    def renew(self, requests: Sequence[ClaimRequest]) -> Op[None]:
        """Let leases last their full length from now, unless a commit or release has begun."""
        for request in requests:
            if not request.state.is_renewable:
                request.outcome = request.state
        yield from self._extended([each for each in requests if each.outcome is None])

    def _extended(self, requests: Sequence[ClaimRequest]) -> Op[None]:
        record = [self._stored.key] if self._stored.has_layers else []
        late = True
        for _ in range(2):
            if not (requests and late):
                break
            lease, sent = requests[0].lease, clock.now()
            answers = yield from self._call(_EXTEND, requests, record, [lease])
            for request, answer in zip(requests, answers, strict=True):
                state = request.state
                if answer == "1":
                    state.prolong(lease, sent)
                    request.outcome = state
                elif request.verb == "renew" and not state.is_renewable:
                    request.outcome = state  # the commit or release has ended the claim
                elif state.status != "claimed":
                    _check(request)  # so has a call beside this one
                else:
                    state.loss_unreported = request.verb == "renew"
                    request.outcome = lost_error(state)
            requests, late = [each for each in requests if each.error is None], is_late(sent, lease)

    def _call(
        self,
        script: scripts.Script[bytes | str],
        requests: Sequence[ClaimRequest],
        keys: Sequence[bytes],
        arguments: Sequence[int],
    ) -> Op[str]:
        """Run a script about claims; return a digit for each."""
        claims = [self.key(each.encoded) for each in requests]
        values = [each.state.value for each in requests]
        with self._outcome_matters:
            reply = yield from call(script, [*claims, *keys], [*arguments, *values], self._stored.wait)
            return _digits_of(reply, len(requests))


_ATTEMPTS: Final[dict[str, Callable[[Claims, Sequence[ClaimRequest]], Op[None]]]] = {
    "claim": Claims.claim,
    "commit": Claims.commit,
    "release": Claims.release,
    "extend": Claims.extend,
    "renew": Claims.renew,
}


def _uncommitted(requests: Sequence[ClaimRequest]) -> list[ClaimRequest]:
    """Return the requests to commit that are left; a call beside this one may have committed a claim."""
    for request in requests:
        if request.state.status == "done":
            request.outcome = request.state
    return [each for each in requests if each.outcome is None]


def _further(options: ClaimOptions, taken: int | None) -> list[Part]:
    """Return the arguments that most claims do without."""
    if taken is not None:
        return [options.replaced or b"", taken]
    return [options.replaced] if options.replaced else []


def _packed_one(layout: Packing, state: ClaimState) -> bytes:
    """Return the packed item of a claim, which keeps it for its commit."""
    known, packed = state.packed
    if known is not layout:
        packed = layout.pack_one(state.encoded)
        if layout.item_bytes:  # a module's item is not packed, and may be long
            state.packed = layout, packed
    return packed


def _packed(layout: Packing, requests: Sequence[ClaimRequest]) -> bytes:
    """Return the packed items of claims, each of which keeps its own for its commit."""
    states = [each.state for each in requests]
    kept = [packed for known, packed in [each.packed for each in states] if known is layout]
    if len(kept) == len(states):
        return b"".join(kept)
    packed, size = layout.pack([each.encoded for each in states]), layout.item_bytes
    if size:
        for state, at in zip(states, range(0, len(packed), size), strict=True):
            state.packed = layout, packed[at : at + size]
    return packed


def _name_owners(handle: Handle, requests: Sequence[ClaimRequest], owners: Sequence[list[bytes]]) -> bytes:
    """Record under which owner each item is claimed, the first of its owners; return these owners."""
    for request, own in zip(requests, owners, strict=True):
        request.state.value = handle.generation + own[0]
    return b"".join([own[0] for own in owners])


def _no_room() -> Refusal:
    """Return the refusal of the items behind those of a reply that ends early."""
    return Refusal(replies.FULL, "there is no room for new items")


def _check(request: ClaimRequest) -> None:
    """End a request about a claim that is not held with an error."""
    try:
        check_held(request.state)
    except ClaimLostError as error:
        request.outcome = error


def _commits_of(reply: Reply, count: int) -> str:
    """Return the answers to commits; they may end before the first item that the filter has no room for."""
    text = text_of(reply)
    if not _COMMITS.fullmatch(text) or len(text) > count:
        raise failed(f"{reply!r:.80} is no reply with the answers to {count} commits")
    return text


def _digits_of(reply: bytes | str, count: int) -> str:
    text = text_of(reply)
    if len(text) != count or text.strip("01"):
        raise failed(f"{reply!r:.80} is no reply about {count} claims")
    return text
