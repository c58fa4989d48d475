"""Simulated processes: filter objects, and calls that go on at the same time, as those of threads do."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bloomredis.protocol import steps
from tests.simulation.history import Request

ACKNOWLEDGING: Final = ("reserve", "clear", "delete")
"""Calls after which an object goes on with whatever filter is there."""

_TELLING: Final = ("add", "contains", "remove", "claim", "commit")
"""Calls whose answer says that the object has opened the filter."""

Outcome = Callable[["Call", Any, BaseException | None], None]


@dataclass(frozen=True)
class Setup:
    """How a process is set up, and its filter objects: options for each.

    :ivar retries: how often the client library sends a command again.
    """

    name: str
    objects: tuple[tuple[tuple[str, Any], ...], ...]
    retries: int = 0
    is_async: bool = False


class Owner:
    """A filter object, and the generations that it was given.

    :ivar filter: its operations, or the asyncio filter over them.
    :ivar acknowledged: the entry of the log and the generation that its last `reserve` or `clear` ended with.
    """

    def __init__(self, name: str, process: Process, made: Any, options: dict[str, Any]) -> None:
        self.name, self.process, self.filter, self.options = name, process, made, options
        self.recreates = options.get("on_lost") == "recreate"
        self.retry_safe = options.get("retry_safe", True)
        self.cache_seconds: float = (
            options.get("local_cache_check", 1.0) if options.get("local_cache") else 0.0
        )
        self.generations: dict[bytes | None, float] = {}  # and the step until which each was given
        self.acknowledged: tuple[int, bytes | None] | None = None
        self.is_fresh = True
        self._fresh_since = -1
        self.running: list[Request] = []
        self._opened: tuple[int, bytes | None] | None = None  # by a call that goes on with what is there
        self._newest: bytes | None = None  # by any call

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{self.name}({options})"

    def knows(self, generation: bytes | None, request: Request) -> bool:
        """Return whether the object was given a generation, and no other one before a request began."""
        return self.generations.get(generation, -1) >= request.started

    def opened(self, generation: bytes | None, entry: int, requests: Sequence[Request]) -> None:
        """Note that one of its calls was executed that opens what is there."""
        for request in requests:
            request.opened = entry, generation
        if self.recreates or self.may_open:
            self.generations[generation] = math.inf
            self._newest = generation

    def told(self, requests: Sequence[Request]) -> None:
        """Note that calls are given the reply that says what they opened.

        What another call of the object has been told since they began stands, but for calls that acknowledge.
        """
        for request in requests:
            if request.verb in ACKNOWLEDGING or not request.is_behind:
                request.told = request.opened and request.opened[1]
            newer = request.opened and (self._opened is None or request.opened[0] >= self._opened[0])
            if newer and request.verb in ACKNOWLEDGING:
                self._opened = request.opened
        if any(each.opened for each in requests):
            for other in self.running:
                other.is_behind = other.is_behind or other not in requests

    @property
    def may_open(self) -> bool:
        """Whether it goes on with what is there."""
        return self.is_fresh or any(each.verb in ACKNOWLEDGING for each in self.running)

    def begin(self, request: Request) -> None:
        """Note that a request begins."""
        self.running.append(request)
        if request.verb in ACKNOWLEDGING:
            self._opened = None

    def end(self, request: Request, step: int, *, answered: bool) -> None:
        """Note that a request ends."""
        self.running.remove(request)
        acknowledging = any(each.verb in ACKNOWLEDGING for each in self.running)
        if self.recreates and request.told is not None and request.told == self._newest:
            self._leave_others(request.told, step)
        if request.verb not in ACKNOWLEDGING:
            if (
                answered
                and request.verb in _TELLING
                and request.started > self._fresh_since
                and not acknowledging
            ):
                self.is_fresh = False
            return
        if not answered or request.verb == "delete":
            self.is_fresh, self._fresh_since = True, step
        elif not acknowledging:
            self.is_fresh = False
        if answered and not acknowledging:
            given = self._opened or request.opened  # None after a delete
            self._leave_others(given and given[1], step)
            self.acknowledged = None if request.verb == "delete" else self._opened

    def _leave_others(self, given: bytes | None, step: int) -> None:
        """Note that the object goes on with one generation."""
        for generation, last in self.generations.items():
            if generation != given:
                self.generations[generation] = min(last, step)


class Process:
    """A process: its id, and its filter objects by name.

    :ivar unseen: what the hooks of its fork would have been called with, if none was.
    """

    def __init__(self, name: str, pid: int, *, retries: int) -> None:
        self.name, self.pid, self.retries = name, pid, retries
        self.owners: dict[str, Owner] = {}
        self.loop: Any = None
        self.unseen: Any = None


class Call:
    """An operation under way: what a thread does that waits for its replies.

    :ivar requests: those that it answers, one an item.
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
        """Let the operation go on until its next step or its end."""
        try:
            step = on()
        except StopIteration as end:
            self.end(end.value, None)
        except Exception as error:
            self.end(None, error)
        else:
            self._send(self, step)

    def answer(self, reply: Any) -> None:
        """Hand the operation a reply."""
        if self.operation is not None:
            operation = self.operation
            self.go_on(lambda: operation.send(reply))

    def fail(self, error: BaseException) -> None:
        """Raise an error in the operation."""
        if self.operation is not None:
            operation = self.operation
            self.go_on(lambda: operation.throw(error))

    def close(self) -> None:
        """Let the operation know that its caller has gone."""
        if self.operation is not None:
            self.operation.close()
            self.operation = None

    def end(self, answer: Any, error: BaseException | None) -> None:
        """Hand the caller what the operation ended with."""
        if self.operation is not None:
            self.operation.close()
        self.operation = None
        self._ended(self, answer, error)


def grouped(step: Any) -> list[tuple[tuple[int, ...], list[int], list[steps.Call]]]:
    """Return for each server the way to it, and which calls of a step it gets, with these calls."""
    calls = step.calls if isinstance(step, steps.Many) else [step]
    return [(server, own, [calls[i] for i in own]) for server, own in steps.by_server(calls).items()]
