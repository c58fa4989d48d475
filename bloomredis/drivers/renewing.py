"""Renewal of claims: leases are extended in the background until the commit or release begins.

A claim is due when a third of its lease has passed; after a renewal that failed, when a twelfth has.  One
timer, a thread of the process or a handle of an event loop, wakes at ticks, so that claims that are due at
about the same time share a script.  The claims that are due on one node go to a thread or task of their own,
so that a node without replies delays no other.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from bloomredis.arguments import shown
from bloomredis.errors import ClaimLostError
from bloomredis.operations.claims.state import ClaimState
from bloomredis.protocol import clock
from bloomredis.protocol.cluster import is_cluster
from bloomredis.protocol.forks import register_after_fork

_PER_LEASE: Final = 3
_PER_LEASE_AFTER_A_FAILURE: Final = 12
_LATE: Final = 8
"""To share a tick, a renewal may be late by an eighth of the pause between renewals."""
_LONGEST: Final = 20.0
"""Seconds after which a claim that is not due is looked at, so that one that has ended is forgotten."""
_MANY: Final = 1000
"""The number of new claims that wakes a timer, for the same reason."""
_LONG: Final = 3600.0
"""Seconds of renewal after which the log has a line about the claim."""

_log = logging.getLogger("bloomredis")


@dataclass(slots=True, weakref_slot=True)
class Renewal:
    """A claim as its timer knows it: its state, its filter, and for how many seconds it is renewed.

    Only the claim holds it, so it goes with the claim.
    """

    state: ClaimState
    seen: Any
    seconds: float
    began: float
    is_told: bool = False

    @property
    def pause(self) -> float:
        """The seconds between two renewals."""
        return self.state.lease / 1000 / _PER_LEASE

    @property
    def node(self) -> object:
        """A key for the node that has the claim: the client, and the name of a cluster's node."""
        client: Any = self.seen._client
        kind: type = type(client)
        if is_cluster(kind):
            with suppress(Exception):  # the renewal will meet it, too
                key = self.seen._operations.claim_key(self.state.encoded)
                return id(client), client.get_node_from_key(key).name
        return id(client)

    def has_ended(self, now: float) -> bool:
        """Return whether a claim that is due is not renewed any more; log one that is renewed for long."""
        if (passed := now - self.began) < _LONG and passed < self.seconds:
            return False
        item, has_ended = shown(self.state.item), passed >= self.seconds
        if has_ended:
            left = self.state.remaining
            _log.warning("%s was renewed for %.0f s, and now its lease ends in %.1f s", item, passed, left)
        elif not self.is_told:
            self.is_told = True
            _log.warning("%s has been renewed for %.0f s; after %.0f s that ends", item, passed, self.seconds)
        return has_ended


_Due = tuple[float, weakref.ref[Renewal]]
"""A renewal, and the monotonic time at which it is due."""
_Group = list[Renewal]
"""Renewals on one filter and node."""


class _Timer:
    """The renewals of this process's threads or of one event loop.

    It needs no lock, so a finaliser or a signal handler may add a claim anywhere.
    """

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        """Begin without claims: a forked child renews none of its parent's."""
        self._added: deque[_Due] = deque()
        self._wakes_at = math.inf  # the monotonic time by which the timer looks at what was added
        register_after_fork(self)

    def add(self, renewal: Renewal, earliest: float = 0.0) -> None:
        """Renew a claim from now on, or from the monotonic time `earliest` on."""
        state = renewal.state
        lease = state.lease / 1000
        pause = lease / _PER_LEASE
        due = max(earliest, state.until - lease + pause)
        self._added.append((due, weakref.ref(renewal)))
        if due + pause / _LATE < self._wakes_at or len(self._added) >= _MANY:
            self._wake()

    def _wake(self) -> None:
        """Let the timer look at what was added."""
        raise NotImplementedError

    def _take(self, ticks: dict[float, list[_Due]]) -> list[list[_Group]]:
        """Return the renewals that are due: for each node a list, for each filter on it a group.

        :param ticks: the renewals that are not due, by the time at which to look at them.
        """
        self._wakes_at, now, ended = math.inf, clock.now(), math.inf
        nodes: dict[object, dict[int, _Group]] = {}
        for tick in [each for each in ticks if each <= now]:
            self._added.extend(ticks.pop(tick, ()))
        with suppress(IndexError):  # none is left
            while True:
                due, ref = self._added.popleft()
                renewal = ref()
                if renewal is None or not renewal.state.is_renewable:
                    ended = min(ended, due) if due > now else ended
                elif due > now:
                    # A power of two, so that claims with other leases share the tick.
                    step = math.ldexp(0.5, math.frexp(min(renewal.pause, _LONGEST) / _LATE)[1])
                    tick = math.ceil(min(due, now + _LONGEST) / step) * step
                    ticks.setdefault(tick, []).append((due, ref))
                elif not renewal.has_ended(now):
                    nodes.setdefault(renewal.node, {}).setdefault(id(renewal.seen), []).append(renewal)
        if ended < math.inf:  # else each claim that is committed at once would wake the timer
            ticks.setdefault(ended, [])
        return [[*groups.values()] for groups in nodes.values()]

    def _add_next(self, group: _Group, failures: Sequence[Exception | None]) -> None:
        """Add the next renewals of claims that are still held; log those that are lost."""
        now = clock.now()
        for renewal, failure in zip(group, failures, strict=True):
            if isinstance(failure, ClaimLostError):
                _log.warning("%s", failure)
            else:
                self.add(renewal, now + renewal.state.lease / 1000 / _PER_LEASE_AFTER_A_FAILURE)
        group.clear()  # the traceback of an error may keep the caller's frame


class _ThreadTimer(_Timer):
    """A thread that starts a thread for each node on which claims are due."""

    def after_fork(self) -> None:
        super().after_fork()
        self._thread: threading.Thread | None = None
        self._asleep = threading.Lock()  # held, but for a moment after `_wake`
        self._asleep.acquire()

    def _wake(self) -> None:
        with suppress(RuntimeError):  # it is awake
            self._asleep.release()
        if self._thread is None or not self._thread.is_alive():  # a second thread does no harm
            self._thread = _daemon("bloomredis-renewals", self._work)
            try:
                self._thread.start()
            except RuntimeError as error:
                self._added.clear()
                _log.warning("claims are not renewed and end with their leases: %s", error)

    def _work(self) -> None:
        ticks = dict[float, list[_Due]]()
        while True:
            for groups in self._take(ticks):
                try:
                    _daemon("bloomredis-renewal", self._renew, groups).start()
                except RuntimeError:  # no more threads can be started
                    self._renew(groups)
            self._wakes_at = min(ticks, default=math.inf)
            self._asleep.acquire(timeout=max(0.0, self._wakes_at - clock.now()) if ticks else -1)

    def _renew(self, groups: list[_Group]) -> None:
        while groups:
            group = groups.pop()
            seen = group[0].seen
            try:
                failures = seen._run(seen._operations.renew_many([each.state for each in group]))
            except Exception as error:
                failures = [error] * len(group)
            self._add_next(group, failures)


def _daemon(name: str, work: Callable[..., None], *arguments: Any) -> threading.Thread:
    return threading.Thread(target=work, args=arguments, name=name, daemon=True)


class _LoopTimer(_Timer):
    """A timer of an event loop that begins a task for each node on which claims are due."""

    def after_fork(self) -> None:
        super().after_fork()
        self._ticks: dict[float, list[_Due]] = {}
        self._handle: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # the loop keeps only weak references

    def _wake(self) -> None:
        loop = asyncio.get_running_loop()
        if self._handle is not None:
            self._handle.cancel()
        for groups in self._take(self._ticks):
            task = loop.create_task(self._renew(groups))
            self._tasks.add(task)
            task.add_done_callback(partial(self._end, groups))
        self._wakes_at = min(self._ticks, default=math.inf)
        if self._ticks:
            self._handle = loop.call_later(max(0.0, self._wakes_at - clock.now()), self._wake)

    async def _renew(self, groups: list[_Group]) -> None:
        while groups:
            group, seen = groups[-1], groups[-1][0].seen
            try:
                failures = await seen._run(seen._operations.renew_many([each.state for each in group]))
            except Exception as error:
                failures = [error] * len(group)
            groups.pop()
            self._add_next(group, failures)

    def _end(self, groups: list[_Group], task: asyncio.Task[None]) -> None:
        """Add the renewals that a task has not made, even if it was cancelled before it began."""
        self._tasks.discard(task)
        for group in groups:
            self._add_next(group, [RuntimeError("the task was cancelled")] * len(group))


_thread: Final = _ThreadTimer()
_loops: Final[dict[asyncio.AbstractEventLoop, _LoopTimer]] = {}
"""The timers of event loops; a closed loop's is removed when another loop first renews a claim."""


def renew_in_thread(renewal: Renewal) -> None:
    """Renew a claim from now on, in a thread."""
    _thread.add(renewal)


def renew_in_task(renewal: Renewal) -> None:
    """Renew a claim from now on, in tasks of the running loop."""
    loop = asyncio.get_running_loop()
    timer = _loops.get(loop)
    if timer is None:
        for other in [*_loops]:
            if other.is_closed():
                _loops.pop(other, None)
        timer = _loops.setdefault(loop, _LoopTimer())
    timer.add(renewal)
