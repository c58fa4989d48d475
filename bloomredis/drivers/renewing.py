"""Renewal of claims: leases are extended until the commit or release begins.

A claim is renewed after a third of its lease.  A renewal that fails is retried after a twelfth of the lease,
until a reply says that the claim is lost.  Renewal also ends when the caller's `Claim` object is gone.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
import threading
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from bloomredis.drivers.driven import AsyncDriven, Driven
from bloomredis.errors import ClaimLostError
from bloomredis.operations.claims.state import ClaimState
from bloomredis.protocol import clock
from bloomredis.protocol.forks import register_after_fork

LINGER: Final = 10.0
"""Seconds after which a thread without claims ends."""

_FEW: Final = 100
"""The renewals of ended claims are removed once this many renewals are waiting, or more."""
_PER_LEASE: Final = 3
_PER_LEASE_AFTER_A_FAILURE: Final = 12
_EARLY: Final = 8
"""To share a round trip, a renewal may come early: by an eighth of the pause between renewals."""

_log = logging.getLogger("bloomredis")


class _Renewal(NamedTuple):
    """A renewal of a claim: the time, the claim and its filter.  Renewals sort by time, then by number."""

    due: float
    number: int
    claim: weakref.ref[object]  # the caller's object
    state: ClaimState
    seen: Any  # the filter, synchronous or not

    @property
    def is_wanted(self) -> bool:
        """True while the caller has the claim object, and the claim has not ended."""
        return self.state.is_renewable and self.claim() is not None


class _Schedule:
    """The renewals that are waiting, ordered by time."""

    def __init__(self) -> None:
        self._waiting: list[_Renewal] = []
        self._most = _FEW
        self._numbers = itertools.count()

    @property
    def next_due(self) -> float:
        """The monotonic time of the next renewal; infinity if none is waiting."""
        return self._waiting[0].due if self._waiting else math.inf

    def add(self, claim: object, state: ClaimState, seen: Any) -> None:
        """Add the first renewal of a claim."""
        self._put(_pause(state), weakref.ref(claim), state, seen)

    def _put(self, pause: float, claim: weakref.ref[object], state: ClaimState, seen: Any) -> None:
        if len(self._waiting) >= self._most:  # ended claims would stay until they are due
            waiting, self._waiting = self._waiting, []  # a finaliser may add a renewal meanwhile
            self._waiting += [each for each in waiting if each.is_wanted]
            heapq.heapify(self._waiting)
            self._most = max(_FEW, 2 * len(self._waiting))
        due = clock.now() + pause
        heapq.heappush(self._waiting, _Renewal(due, next(self._numbers), claim, state, seen))

    def take_due(self) -> list[list[_Renewal]]:
        """If a renewal is due, remove all that are due now or soon; return the wanted ones.

        Those of one filter are together, so that a server without replies delays no others.
        """
        by_filter: dict[int, list[_Renewal]] = {}
        now = clock.now()
        early = 0.0
        while self._waiting and self._waiting[0].due - early <= now:
            renewal = heapq.heappop(self._waiting)
            early = _pause(renewal.state) / _EARLY
            if renewal.is_wanted:
                by_filter.setdefault(id(renewal.seen), []).append(renewal)
        return list(by_filter.values())

    def add_next(self, done: Sequence[_Renewal], failures: Sequence[Exception | None]) -> None:
        """Add the next renewal of each claim that is still held; log a claim that is lost."""
        for each, failure in zip(done, failures, strict=True):
            if isinstance(failure, ClaimLostError):
                _log.warning("%s", failure)
            elif each.is_wanted:
                self._put(_pause(each.state, failure), *each[2:])


class _ThreadRenewals:
    """The renewals of claims over one client; a thread makes them, in a batch for each filter."""

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        """Begin without claims and threads: a forked child has none of its parent's."""
        self._changed = threading.Condition()
        self._schedule = _Schedule()
        self._thread: threading.Thread | None = None
        register_after_fork(self)

    def add(self, claim: object, state: ClaimState, seen: Driven) -> None:
        """Renew a claim from now on."""
        with self._changed:
            self._schedule.add(claim, state, seen)
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._work, name="bloomredis-renewals", daemon=True)
                self._thread = thread
                thread.start()
            self._changed.notify()

    def _work(self) -> None:
        while due := self._due():
            for renewals in due:
                failures = _made(renewals[0].seen, [each.state for each in renewals])
                with self._changed:
                    self._schedule.add_next(renewals, failures)

    def _due(self) -> list[list[_Renewal]]:
        """Wait for renewals that are due, and return them; return none after `LINGER` seconds without any."""
        with self._changed:
            idle_until = clock.now() + LINGER
            while True:
                if due := self._schedule.take_due():
                    return due
                until = self._schedule.next_due
                if until == math.inf:
                    until = idle_until
                    if clock.now() >= idle_until:
                        self._thread = None
                        return []
                self._changed.wait(until - clock.now())


def _made(seen: Driven, states: list[ClaimState]) -> list[Exception | None]:
    """Renew claims on one filter; return the error of each that failed."""
    try:
        return seen._run(seen._operations.renew_many(states))  # noqa: SLF001 - a filter and its claims are one thing
    except Exception as error:
        return [error] * len(states)


def _pause(state: ClaimState, failure: Exception | None = None) -> float:
    """Return the seconds until the next renewal, which comes sooner after a failure."""
    return state.lease / 1000 / (_PER_LEASE if failure is None else _PER_LEASE_AFTER_A_FAILURE)


class _Threads:
    """The renewals of this process, by client: a server that does not reply delays only its own claims.

    It needs no lock, so a finaliser or a signal handler may use it anywhere.
    """

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        """Begin without renewals."""
        self._by_client: weakref.WeakKeyDictionary[object, _ThreadRenewals] = weakref.WeakKeyDictionary()
        register_after_fork(self)

    def of(self, client: object) -> _ThreadRenewals:
        """Return the renewals over a client."""
        return self._by_client.get(client) or self._by_client.setdefault(client, _ThreadRenewals())


_threads: Final = _Threads()


def renew_in_thread(claim: object, state: ClaimState, seen: Driven) -> None:
    """Renew a claim from now on, in a thread."""
    _threads.of(seen._client).add(claim, state, seen)  # noqa: SLF001 - as above


class _LoopRenewals:
    """The renewals of claims in one event loop; a task for each filter makes the due ones."""

    def __init__(self) -> None:
        self._schedule = _Schedule()
        self._next_timer = math.inf  # the monotonic time of the earliest timer
        # The loop keeps only weak references to tasks.
        self._tasks: set[asyncio.Task[Sequence[Exception | None]]] = set()

    def add(self, claim: object, state: ClaimState, seen: AsyncDriven) -> None:
        """Renew a claim from now on."""
        self._schedule.add(claim, state, seen)
        self._set_timer()

    def _set_timer(self) -> None:
        due = self._schedule.next_due
        if due < self._next_timer:
            self._next_timer = due
            asyncio.get_running_loop().call_later(max(0.0, due - clock.now()), self._begin)

    def _begin(self) -> None:
        self._next_timer = math.inf
        for renewals in self._schedule.take_due():
            states = [each.state for each in renewals]
            task = asyncio.get_running_loop().create_task(_made_in_task(renewals[0].seen, states))
            self._tasks.add(task)
            task.add_done_callback(partial(self._add_next, renewals))
        self._set_timer()

    def _add_next(self, renewals: list[_Renewal], task: asyncio.Task[Sequence[Exception | None]]) -> None:
        """Add the next renewals after a task, even one that was cancelled before it began."""
        self._tasks.discard(task)
        is_done = not task.cancelled() and task.exception() is None
        failures = task.result() if is_done else [RuntimeError("the task was cancelled")] * len(renewals)
        self._schedule.add_next(renewals, failures)
        self._set_timer()


async def _made_in_task(seen: AsyncDriven, states: list[ClaimState]) -> Sequence[Exception | None]:
    """Renew claims on one filter; return the error of each that failed."""
    try:
        return await seen._run(seen._operations.renew_many(states))  # noqa: SLF001 - as above
    except Exception as error:
        return [error] * len(states)


_loops: Final[dict[asyncio.AbstractEventLoop, _LoopRenewals]] = {}
"""The renewals of this process by event loop.

The entry of a closed loop is removed when another loop first renews a claim."""


def renew_in_task(claim: object, state: ClaimState, seen: AsyncDriven) -> None:
    """Renew a claim from now on, in tasks of the running loop."""
    loop = asyncio.get_running_loop()
    if loop not in _loops:
        for other in [*_loops]:
            if other.is_closed():
                _loops.pop(other, None)
        _loops[loop] = _LoopRenewals()
    _loops[loop].add(claim, state, seen)
