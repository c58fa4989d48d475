"""An event loop without files, on the simulated clock, and the client for asyncio filters."""

from __future__ import annotations

import asyncio
import heapq
import math
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

Send = Callable[[list[Any], "asyncio.Future[Any]", bool], None]


class Loop(asyncio.AbstractEventLoop):
    """Runs callbacks in the order of their requests, until none is left or due.

    A task of `start` is a caller; the library makes the others.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[asyncio.TimerHandle] = []
        self._clock = clock
        self._is_closed = False
        self._errors: list[BaseException] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._own: list[asyncio.Task[Any]] = []  # of the library
        self._doomed: int | None = None  # the turns until the library's next task is cancelled

    def call_soon(  # type: ignore[override]  # as in the standard library, but for its type variables
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]  # as above
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # as above
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._timers = [each for each in self._timers if each is not handle]
        heapq.heapify(self._timers)

    @property
    def next_due(self) -> float:
        """The time of the next timer; infinity without timers."""
        return self._timers[0].when() if self._timers else math.inf

    @property
    def has_own_work(self) -> bool:
        """Whether the library has a timer or a task."""
        return bool(self._timers or self._own)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **_: Any) -> asyncio.Task[Any]:
        task = self._new_task(coro)
        self._own.append(task)
        if self._doomed is not None:
            turns, self._doomed = self._doomed, None
            self._cancel(task, turns)
        return task

    def _new_task(self, coroutine: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=self)
        self._tasks.append(task)
        return task

    def _cancel(self, task: asyncio.Task[Any], turns: int) -> None:
        if turns:
            self.call_soon(self._cancel, task, turns - 1)
        else:
            task.cancel()

    def cancel_own(self, turns: int | None) -> None:
        """Cancel the library's next task after some turns, 0 for none; None: all its tasks in flight."""
        if turns is not None:
            self._doomed = turns
        else:
            for task in self._own:
                task.cancel()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if error := context.get("exception"):
            self._errors.append(error)

    def time(self) -> float:
        return self._clock()

    def get_debug(self) -> bool:
        return False

    def is_closed(self) -> bool:
        return self._is_closed

    def is_running(self) -> bool:
        return True

    def run(self) -> None:
        """Run all callbacks and those that they add; raise an exception of any."""
        events._set_running_loop(self)
        try:
            while self._ready or self.next_due <= self.time():
                handle = self._ready.popleft() if self._ready else heapq.heappop(self._timers)
                if not handle.cancelled():
                    handle._run()
        finally:
            events._set_running_loop(None)
        self._tasks = [task for task in self._tasks if not task.done()]
        self._own = [task for task in self._own if not task.done()]
        if self._errors:
            raise self._errors.pop()

    def stop(self) -> None:
        """Drop all tasks and timers, as if the process had died."""
        self._is_closed = True
        events._set_running_loop(self)
        try:
            for task in self._tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]  # of the standard library
                    task.get_coro().close()
        finally:
            events._set_running_loop(None)
        self._ready.clear()
        self._timers.clear()

    def start(
        self, coroutine: Coroutine[Any, Any, Any], ended: Callable[[Any, BaseException | None], None]
    ) -> Any:
        """Start a task; `ended` is called with its answer or its error."""

        def done(task: asyncio.Task[Any]) -> None:
            if task.cancelled():
                ended(None, asyncio.CancelledError())
            elif task.exception() is not None:
                ended(None, task.exception())
            else:
                ended(task.result(), None)

        task = self._new_task(coroutine)
        task.add_done_callback(done)
        return task


class Client:
    """A client for an asyncio filter: `send` gets commands and the future of their replies."""

    def __init__(self, loop: Loop, send: Send) -> None:
        self._loop, self._send = loop, send

    async def execute_command(self, *command: Any, **_: Any) -> Any:
        future = self._loop.create_future()
        self._send([command], future, True)
        return await future

    def pipeline(self, *, transaction: bool) -> Pipeline:
        assert not transaction
        return Pipeline(self._loop, self._send)


class ClusterClient(Client):
    """A client of several nodes, each of which has a range of slots."""

    def __init__(self, loop: Loop, send: Send, place: Callable[[Any], int]) -> None:
        super().__init__(loop, send)
        self._place = place

    async def initialize(self) -> None:
        """Do nothing: the map of slots never changes."""

    def get_node_from_key(self, key: Any) -> Node:
        return Node(self, str(self._place(key)))


class Node:
    """A node of a cluster."""

    def __init__(self, client: ClusterClient, name: str) -> None:
        self.name, self._client = name, client
        self.execute_command = client.execute_command

    async def execute_pipeline(self, queued: Sequence[Any]) -> None:
        pipe = self._client.pipeline(transaction=False)
        for each in queued:
            pipe.execute_command(*each.args)
        for each, reply in zip(queued, await pipe.execute(raise_on_error=False), strict=True):
            each.result = reply


class Pipeline:
    """Commands that are sent together."""

    def __init__(self, loop: Loop, send: Send) -> None:
        self._loop, self._send = loop, send
        self._commands: list[Any] = []

    def execute_command(self, *command: Any, **_: Any) -> None:
        self._commands.append(command)

    async def execute(self, *, raise_on_error: bool) -> Any:
        assert not raise_on_error
        future = self._loop.create_future()
        self._send(self._commands, future, False)
        return await future
