"""Simulated processes: filter objects, and concurrent calls like those of threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from bloomredis.protocol import steps
from bloomredis.protocol.gather import told_mark
from tests.simulation.history import Request
from tests.simulation.network import key_of, node_of
from tests.support.points import raised_at

READING: Final = ("contains", "info")
"""Calls that open the filter, and do not create it."""
ACKNOWLEDGING: Final = ("acknowledge", "clear", "delete")
"""Calls after which an object accepts the stored filter."""
QUIET: Final = ("info", "renew")
"""Calls whose `FilterLostError` tells nobody: no caller asked for an answer about an item."""

_TELLING: Final = ("add", "remove", "claim", "commit", "create")
"""Calls whose answer shows that the object has opened the filter, or created it."""

Outcome = Callable[["Call", Any, BaseException | None], None]


class SoftTimeLimit(Exception):  # noqa: N818 - as in Celery
    """An exception from neither the client library nor bloomredis."""


@dataclass(frozen=True)
class Setup:
    """The options of a process, and of each of its filter objects.

    :ivar retries: how often the client library retries a command.
    :ivar is_cluster: the process uses a cluster client.
    :ivar walls: the seconds by which its wall clock is wrong, one after the other.
    """

    name: str
    objects: tuple[tuple[tuple[str, Any], ...], ...]
    retries: int = 0
    is_async: bool = False
    is_cluster: bool = False
    walls: tuple[float, ...] = (0.0,)


class Owner:
    """A filter object, and the generations that it got.

    :ivar filter: its operations, or the asyncio filter over them.
    :ivar acknowledged: the entry of the log and the generation at the end of its last call on purpose.
    """

    def __init__(self, name: str, process: Process, made: Any, options: dict[str, Any]) -> None:
        self.name, self.process, self.filter, self.options = name, process, made, options
        self.recreates = options.get("on_lost") == "recreate"
        self.retry_safe = options.get("retry_safe", True)
        self.cache_seconds = float(options.get("local_cache", 0))  # True is 1
        self.generations: dict[bytes | None, float] = {}  # with the last step at which each was current
        self.acknowledged: tuple[int, bytes | None] | None = None
        self.is_fresh = True
        self.is_copy = False  # of an object of another process
        self.raised: int | None = None  # the step at which it raised the last loss, until it goes on
        self._lost_at = -1  # the first step at which it raised that loss
        self.raised_quietly = -1  # the last step at which a call did that tells nobody
        self._fresh_since = -1
        self._is_used = False  # by any call
        self.running: list[Request] = []
        self._opened: tuple[int, bytes | None] | None = None  # by a call that accepts the stored filter
        self._newest: bytes | None = None  # by any call

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{self.name}({options})"

    def knows(self, generation: bytes | None, request: Request) -> bool:
        """Return whether the object got a generation, and no other one before a request began."""
        return self.generations.get(generation, -1) >= request.started

    def opened(self, generation: bytes | None, entry: int, requests: Sequence[Request], step: int) -> None:
        """Record that one of its calls that open the filter was executed."""
        for request in requests:
            request.opened, request.opened_at = (entry, generation), step
        if self.recreates or self.may_open or self.raised is not None:
            self.generations[generation] = math.inf
            self._newest = generation

    def told(self, requests: Sequence[Request]) -> None:
        """Record the reply that says which generation calls opened.

        If another call of the object got a generation since they began, that one stands, except for calls
        that acknowledge a loss.
        """
        for request in requests:
            if request.verb in ACKNOWLEDGING or not request.got_beside:
                request.told = request.opened and request.opened[1]
            newer = request.opened and (self._opened is None or request.opened[0] >= self._opened[0])
            if newer and request.verb in ACKNOWLEDGING:
                self._opened = request.opened
        new = [each for each in requests if each.opened_at > each.told_at]
        for each in new:
            each.told_at = each.opened_at
        for other in self.running:
            if other not in requests:
                other.got_beside += [each.opened for each in new if each.opened]

    def go_on(self, requests: Sequence[Request]) -> None:
        """Record that a reply was taken, with which the object may go on after a loss."""
        new = any(each.opened_at > self._lost_at and each.verb not in ACKNOWLEDGING for each in requests)
        if new and self.has_opened:  # else a signal has come between
            self.raised = None

    def raise_loss(self, request: Request, step: int) -> None:
        """Record a `FilterLostError`."""
        if request.verb in QUIET:
            self.raised_quietly = step
        else:
            self._lost_at = step if self.raised is None else self._lost_at
            self.raised = step
            if request.started > self._fresh_since:
                self.is_fresh = False  # it had opened the filter, though no call was answered
            if request.started < self.raised_quietly:
                self.raised_quietly = step  # it may be about an older loss than that which nobody was told of

    @property
    def may_open(self) -> bool:
        """Whether the object accepts the stored filter."""
        return self.is_fresh or any(each.verb in ACKNOWLEDGING for each in self.running)

    def begin(self, request: Request) -> None:
        """Record the start of a request."""
        request.was_fresh = self.is_fresh
        compares = request.verb == "create" and self.has_opened  # a loss that it meets is a later one
        request.was_told = self.raised is not None and self.raised > self.raised_quietly and not compares
        self.running.append(request)
        if len(self.running) > 1:
            for each in self.running:
                each.is_alone = False
        if self.is_copy:
            pass  # nobody says which calls of the other object had ended in time
        elif not self.is_fresh:
            request.knew = frozenset(each for each, last in self.generations.items() if last == math.inf)
        elif not self._is_used:
            request.knew = frozenset()
        self._is_used = True
        if any(each.verb in ACKNOWLEDGING for each in self.running):
            for each in self.running:
                each.is_beside = True
        if request.verb in ACKNOWLEDGING:
            self._opened = None

    def end(self, request: Request, step: int, *, answered: bool) -> None:
        """Record the end of a request."""
        self.running.remove(request)
        if answered and request.verb == "acknowledge" and not self.has_opened:
            return  # it has found no filter, and has made none for an object that knew none
        uses = request.verb in (*_TELLING, "contains") and request.started > (self.raised or 0)
        if answered and (uses or request.verb in ACKNOWLEDGING):
            self.raised = None
        acknowledging = any(each.verb in ACKNOWLEDGING for each in self.running)
        if self.recreates and request.told is not None and request.told == self._newest:
            self._leave_others(request.told, step)
        if request.verb not in ACKNOWLEDGING:
            if (
                answered
                and (request.verb in _TELLING or (request.verb == "contains" and self.has_opened))
                and request.started > self._fresh_since
                and not acknowledging
            ):
                self.is_fresh = False
            return
        if not answered or request.verb == "delete" or not (self._opened or request.opened):
            self.is_fresh, self._fresh_since = True, step
        elif acknowledging or request.started < self._fresh_since:
            return  # nobody says which call's generation the object has, if one of them has failed
        else:
            self.is_fresh = False
        if answered:
            given = self._opened or request.opened  # None after a delete, or if nothing was stored
            newest = given and given[1]
            stands = request.emptied is not None and any(  # another call has got it since
                entry >= request.emptied and generation != newest for entry, generation in request.got_beside
            )
            if not stands and (given or request.verb != "acknowledge"):
                self._leave_others(newest, step)
            self.acknowledged = None if request.verb == "delete" or stands else self._opened

    @property
    def has_opened(self) -> bool:
        """Whether the object has opened the filter: a test may have found none."""
        operations = getattr(self.filter, "_operations", self.filter)  # asyncio filters have operations
        return operations.stored.handle is not None

    def _leave_others(self, given: bytes | None, step: int) -> None:
        """Record that the object uses only this generation from now on."""
        for generation, last in self.generations.items():
            if generation != given:
                self.generations[generation] = min(last, step)


class Process:
    """A process: its id, and its filter objects by name.

    :ivar interrupt_at: the point at which a signal interrupts the call that goes on next in a thread.
    :ivar unseen: the arguments of its fork's hooks, if those were not called.
    """

    def __init__(self, name: str, pid: int, *, retries: int, is_cluster: bool) -> None:
        self.name, self.pid, self.retries, self.is_cluster = name, pid, retries, is_cluster
        self.owners: dict[str, Owner] = {}
        self.loop: Any = None
        self.interrupt_at: int | None = None
        self.unseen: Any = None

    def run(self, on: Callable[[], Any]) -> Any:
        """Continue a call of a thread, which a signal may interrupt."""
        number, self.interrupt_at = self.interrupt_at, None
        with nullcontext() if number is None else raised_at(number, partial(SoftTimeLimit, "time is over")):
            return on()


class Call:
    """An operation in flight, like a thread that waits for its replies.

    :ivar requests: the requests that it answers, one for each item.
    """

    def __init__(self, ref: str, owner: Owner, requests: Sequence[Any], ended: Outcome) -> None:
        self.ref, self.owner, self.requests, self._ended = ref, owner, requests, ended
        self.operation: Generator[Any, Any, Any] | None = None
        self.task: Any = None

    def start(self, operation: Generator[Any, Any, Any], send: Callable[[Call, Any], None]) -> None:
        """Begin an operation; `send` is called with each step."""
        self.operation, self._send = operation, send
        self.go_on(lambda: next(operation))

    def go_on(self, on: Callable[[], Any]) -> None:
        """Continue the operation until its next step or its end."""
        try:
            step = self.owner.process.run(on)
        except StopIteration as end:
            self.end(end.value, None)
        except Exception as error:
            self.end(None, error)
        else:
            self._send(self, step)

    def answer(self, reply: Any) -> None:
        """Give the operation a reply."""
        if self.operation is not None:
            operation = self.operation
            self.go_on(lambda: operation.send(reply))

    def fail(self, error: BaseException) -> None:
        """Raise an error in the operation."""
        if self.operation is not None:
            operation = self.operation
            self.go_on(lambda: operation.throw(error))

    def close(self) -> None:
        """Close the operation, as its caller has left."""
        if self.operation is not None:
            self.operation.close()
            self.operation = None

    def end(self, answer: Any, error: BaseException | None) -> None:
        """Give the caller the operation's outcome."""
        if self.operation is not None:
            self.operation.close()
        self.operation = None
        if error is not None:
            told_mark(error)[0] = True  # as the drivers do
        self._ended(self, answer, error)


def grouped(step: Any, nodes: int) -> list[tuple[int, list[int], list[steps.Call]]]:
    """Return the index of each node with its calls of a step, and their indexes."""
    calls = step.calls if isinstance(step, steps.Many) else [step]
    places = [node_of(key_of(call.commands[0]), nodes) for call in calls]
    own = {place: [i for i, each in enumerate(places) if each == place] for place in dict.fromkeys(places)}
    return [(place, mine, [calls[i] for i in mine]) for place, mine in own.items()]
