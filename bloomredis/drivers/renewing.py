"""Claims that renew themselves: their leases are extended until their commit or release begins.

A claim is renewed at a third of its lease; a renewal that fails is made again soon, until a reply says that
the claim is lost.  It ends with the object that the caller has, if nobody commits or releases it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import threading
import weakref
from typing import Final, NamedTuple

from bloomredis.drivers.driven import AsyncDriven, Driven
from bloomredis.errors import ClaimLostError
from bloomredis.operations.claims.state import Held
from bloomredis.protocol import clock
from bloomredis.protocol.forks import renewed_after_fork

LINGER: Final = 10.0
"""Seconds for which a thread without a claim waits for another one."""

_FEW: Final = 100
"""Claims that may have ended and still be kept."""
_PER_LEASE: Final = 3
_PER_LEASE_AFTER_A_FAILURE: Final = 12

_log = logging.getLogger("bloomredis")


class _Renewal(NamedTuple):
    """A claim to renew: when, and for whom.  Those of one time are in the order of their numbers."""

    due: float
    number: int
    claim: weakref.ref[object]  # the caller's object
    held: Held
    seen: Driven

    @property
    def is_wanted(self) -> bool:
        """True while the caller has the claim, and it has not ended."""
        return self.held.is_renewable and self.claim() is not None


class _Renewals:
    """The renewals of claims over one client: a thread makes those that are due at a time together."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin with no claim and no thread: a forked child has none of its parent's."""
        self._changed = threading.Condition()
        self._waiting: list[_Renewal] = []
        self._most = _FEW
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        renewed_after_fork(self)

    def add(self, claim: object, held: Held, seen: Driven) -> None:
        """Renew a claim from now on."""
        with self._changed:
            self._put(clock.now() + _pause(held), weakref.ref(claim), held, seen)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="bloomredis-renewals", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _put(self, due: float, claim: weakref.ref[object], held: Held, seen: Driven) -> None:
        if len(self._waiting) >= self._most:  # a claim that has ended need not stay until it would be due
            self._waiting = [each for each in self._waiting if each.is_wanted]
            heapq.heapify(self._waiting)
            self._most = max(_FEW, 2 * len(self._waiting))
        heapq.heappush(self._waiting, _Renewal(due, next(self._numbers), claim, held, seen))

    def _work(self) -> None:
        while due := self._due():
            for seen in {id(each.seen): each.seen for each in due}.values():
                self._renew([each for each in due if each.seen is seen], seen)

    def _due(self) -> list[_Renewal]:
        """Wait for renewals that are due and return them; none if none was asked for in a while."""
        with self._changed:
            idle_until = clock.now() + LINGER
            while True:
                now, due = clock.now(), []
                while self._waiting and self._waiting[0].due <= now:
                    due.append(heapq.heappop(self._waiting))
                if due := [each for each in due if each.is_wanted]:
                    return due
                if not self._waiting and now >= idle_until:
                    self._thread = None
                    return []
                until = self._waiting[0].due if self._waiting else idle_until
                self._changed.wait(until - now)

    def _renew(self, due: list[_Renewal], seen: Driven) -> None:
        """Renew claims on one filter."""
        helds = [each.held for each in due]
        failures = _made(seen, helds)
        with self._changed:
            for each, failure in zip(due, failures, strict=True):
                if isinstance(failure, ClaimLostError):
                    _log.warning("%s", failure)
                elif each.is_wanted:
                    self._put(clock.now() + _pause(each.held, failure), *each[2:])


def _made(seen: Driven, helds: list[Held]) -> list[Exception | None]:
    """Renew claims on one filter; return the error of each that failed."""
    try:
        return seen._run(seen._operations.renew_many(helds))  # noqa: SLF001 - a filter and its claims are one thing
    except Exception as error:
        return [error] * len(helds)


def _pause(held: Held, failure: Exception | None = None) -> float:
    """Return the seconds until the next renewal, after one that failed or did not."""
    return held.lease / 1000 / (_PER_LEASE if failure is None else _PER_LEASE_AFTER_A_FAILURE)


class _Threads:
    """The renewals of this process by client: a server that does not answer stops no others."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin with none."""
        self._by_client: weakref.WeakKeyDictionary[object, _Renewals] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        renewed_after_fork(self)

    def of(self, client: object) -> _Renewals:
        """Return the renewals over a client, or the first of several."""
        first = client[0] if isinstance(client, list | tuple) else client
        with self._lock:
            return self._by_client.setdefault(first, _Renewals())


_threads: Final = _Threads()


def renew_in_thread(claim: object, held: Held, seen: Driven) -> None:
    """Renew a claim from a thread of the process, from now on."""
    _threads.of(seen._client).add(claim, held, seen)  # noqa: SLF001 - as above


def renew_in_task(claim: object, held: Held, seen: AsyncDriven) -> None:
    """Renew a claim from a task of the running loop, from now on."""
    held.at_end = _Task(weakref.ref(claim), held, seen).stop


class _Task:
    """The renewal of one claim in asyncio."""

    def __init__(self, claim: weakref.ref[object], held: Held, seen: AsyncDriven) -> None:
        self._is_sleeping = True
        self._task = asyncio.ensure_future(self._work(claim, held, seen))

    def stop(self) -> None:
        """End it; a renewal that is under way is left to its end, so that no connection is cut off."""
        if self._is_sleeping:
            self._task.cancel()

    async def _work(self, claim: weakref.ref[object], held: Held, seen: AsyncDriven) -> None:
        failure: Exception | None = None
        while held.is_renewable and claim() is not None:
            await asyncio.sleep(_pause(held, failure))
            self._is_sleeping = False
            try:
                (failure,) = await seen._run(seen._operations.renew_many([held]))  # noqa: SLF001 - as above
            except Exception as error:
                failure = error
            self._is_sleeping = True
        if isinstance(failure, ClaimLostError):
            _log.warning("%s", failure)
