"""The operations of claims that are the same for every filter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import timedelta
from itertools import takewhile
from typing import Final, Literal, Protocol, TypeVar

from bloomredis import arguments
from bloomredis.arguments import listed
from bloomredis.errors import ClaimLostError, FilterFullError
from bloomredis.operations.claims.calls import MOST_CLAIMS, Claims
from bloomredis.operations.claims.patience import ask, patient, retry_patiently
from bloomredis.operations.claims.requests import ClaimRequest
from bloomredis.operations.claims.state import ClaimOptions, ClaimState, ClaimStatus, parse_token, token_of
from bloomredis.operations.codec import Codec
from bloomredis.operations.items.outcomes import raise_interrupted
from bloomredis.protocol.gather import error_to_raise, gather, unless_failed
from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.steps import Op
from bloomredis.stored.state.knowledge import untold

T = TypeVar("T")
C = TypeVar("C")

_MOST_CALLS: Final = 5
"""The most scripts about claims that share a round trip."""


class Part(Protocol):
    """A filter in one part, or one part of a filter."""

    claims: Claims


class ClaimOperations(ABC):
    """The operations of claims; subclasses implement the abstract ones."""

    name: str
    codec: Codec

    def claim(self, item: object, options: ClaimOptions) -> ClaimRequest:
        """Return the request to claim an item, unless it is done or another worker holds it."""
        return ClaimRequest("claim", ClaimState.new(item, self.codec.encode(item), options), options)

    def claim_many(
        self,
        items: Iterable[object],
        lease: float | timedelta,
        make: Callable[[ClaimState], C],
        owner: str | None = None,
    ) -> Op[list[C]]:
        """Claim items; return `make(state)` of each claim, in order.  Equal items share one claim."""
        options, batch = ClaimOptions.of(lease, owner), listed(items)
        own, places = _distinct(map(as_bytes, self.codec.encode_all(batch)))
        states = [ClaimState.new(batch[i], code, options) for code, i in own.items()]
        requests = [ClaimRequest("claim", state, options) for state in states]
        for request in requests:
            request.fills = True
        try:
            yield from self._answer(requests)
            failed = [each for each in requests if each.outcome is not each.state]
            answered = requests[: requests.index(failed[0])] if failed else requests
            made = [make(each.state) for each in answered]
            claims = [made[place] for place in takewhile(lambda place: place < len(made), places)]
        except BaseException:  # the caller was cancelled or interrupted
            for request in requests:
                request.state.leave()
            raise
        for request in requests[len(made) :]:
            request.state.leave()
        if failed:
            raise_interrupted(
                "claim_many", claims, batch, error_to_raise([each.error for each in failed if each.error])
            )
        return claims

    def end(self, verb: Literal["commit", "release"], state: ClaimState) -> ClaimRequest:
        """Return the request to end a claim; a commit also adds the item to the filter, in the same step."""
        request = ClaimRequest(verb, state)
        if state.status == "done" if verb == "commit" else state.status != "claimed":
            request.outcome = state
        else:
            state.end()
        return request

    def extend(self, state: ClaimState, lease: float | timedelta) -> ClaimRequest:
        """Return the request to hold the item for `lease` seconds (or a timedelta) from now."""
        state.use()
        return ClaimRequest("extend", state, lease=arguments.lease(lease))

    def renew_many(self, states: Sequence[ClaimState]) -> Op[list[Exception | None]]:
        """Renew the leases of claims in one round trip; return the error of each that failed."""
        requests = [ClaimRequest("renew", each, lease=each.lease) for each in states]
        yield from self.attempt(requests)
        return [each.error for each in requests]

    def claim_key(self, encoded: bytes) -> bytes:
        """Return the key of the claim on an item; the filter must be open."""
        return self.part_of(encoded).claims.key(encoded)

    def change_many(
        self,
        verb: Literal["commit", "release", "extend"],
        claims: Sequence[object],
        states: Sequence[ClaimState],
        lease: int = 0,
    ) -> Op[list[ClaimStatus]]:
        """Commit, release or extend claims in one round trip; return the state of each afterwards.

        A claim that is not held keeps its state.

        :param claims: the caller's objects, for the error of an interrupted batch.
        :param lease: of an extension, in ms.
        """
        requests = {id(each): ClaimRequest(verb, each, lease=lease) for each in states}
        for state in states:
            state.use()
            if verb != "extend":
                state.end()
        yield from self._answer([*requests.values()])
        failed = {
            key: each.error
            for key, each in requests.items()
            if each.error is not None and not isinstance(each.error, ClaimLostError)
        }
        answered = takewhile(lambda state: id(state) not in failed, states)
        statuses = [state.status for state in answered]
        if failed:
            raise_interrupted(f"{verb}_many", statuses, claims, error_to_raise([*failed.values()]))
        return statuses

    def _answer(self, requests: Sequence[ClaimRequest]) -> Op[None]:
        """Make requests, and retry the failed commits as long as that is worthwhile."""
        yield from self.attempt(requests)
        yield from retry_patiently(requests, self.attempt)

    def answer_one(self, request: ClaimRequest, *, shares: bool = False) -> Op[ClaimState]:
        """Make a request; retry a commit while that is worthwhile.

        :param shares: let the driver answer it together with the requests of other callers.
        """
        return patient(request, ask if shares else self.attempt_one)

    @abstractmethod
    def attempt_one(self, request: ClaimRequest) -> Op[ClaimState]:
        """Make an attempt at a request; return the claim, or raise the error."""

    def attempt(self, requests: Sequence[ClaimRequest]) -> Op[None]:
        """Make an attempt at requests; each is answered or keeps its error.

        Simultaneous scripts share a round trip.  Two requests about one item must not be in one script.
        """
        runs = list[dict[bytes, ClaimRequest]]()
        current = dict[Hashable, dict[bytes, ClaimRequest]]()
        for request in requests:
            group, item = request.group, request.encoded
            run = current.get(group)
            if run is None or item in run or (len(run) >= MOST_CLAIMS and request.verb != "claim"):
                run = current[group] = {}
                runs.append(run)
            run[item] = request
        attempts = [self.attempted([*run.values()]) for run in runs]
        # Nothing else refers to an operation that runs, so that an interruption ends it at once.
        if len(attempts) == 1:
            yield from attempts.pop()
        else:
            unless_failed((yield from gather(attempts, most=_MOST_CALLS)))

    def attempt_shared(self, requests: Sequence[ClaimRequest]) -> Op[list[ClaimState | Exception]]:
        """Make an attempt at the requests of several callers; return the claim or the error of each.

        A caller that has gone by then leaves its claim to the next one (`ClaimState.leave`).
        """
        try:
            yield from self.attempt(requests)
            # A full filter has refused the first of these, and the script has not looked at the others.
            refused = [each for each in requests if isinstance(each.error, FilterFullError)]
            unless_failed((yield from gather(self.attempted([each]) for each in refused[1:])))
        except BaseException:  # the task of the batch was cancelled
            for request in requests:
                request.state.leave()
            raise
        return [each.error or each.state for each in requests]

    def attempted(self, requests: Sequence[ClaimRequest]) -> Op[None]:
        """Make an attempt at requests of one group; each is answered or keeps its error."""
        for request in requests:
            request.outcome = None  # else it would keep the error of the last attempt
        try:
            if requests[0].verb == "renew":
                yield from untold(self.on_items(requests))
            else:
                yield from self.on_items(requests)
        except Exception as error:
            left = [each for each in requests if each.outcome is None]
            if not left:  # a signal's: no request has failed
                raise
            for request in left:
                request.outcome = error

    @abstractmethod
    def on_items(self, requests: Sequence[ClaimRequest]) -> Op[None]:
        """Make an attempt at requests of one group, on the parts of the filter that have the items."""

    def token(self, state: ClaimState) -> str:
        """Return the token of a claim, from which another process makes the same claim."""
        state.use()
        return token_of(state, self.name)

    def from_token(self, token: str) -> ClaimState:
        """Return the claim of a token."""
        return parse_token(token, self.name)

    @abstractmethod
    def part_of(self, encoded: bytes) -> Part:
        """Return the part that has an item; the filter must be open."""


def _distinct(encoded: Iterable[bytes]) -> tuple[dict[bytes, int], list[int]]:
    """Return the index at which each distinct item first occurs, and the place among them of each item."""
    found: dict[bytes, tuple[int, int]] = {}
    places = [found.setdefault(code, (i, len(found)))[1] for i, code in enumerate(encoded)]
    return {code: first for code, (first, _) in found.items()}, places
