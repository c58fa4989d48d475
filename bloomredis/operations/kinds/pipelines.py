"""Calls queued on the caller's own pipeline, which must not get NOSCRIPT.

The first call of a script in a pipeline is EVAL, which loads the script; later calls are EVALSHA.  When a
pipeline was executed and is filled again, its first call is EVAL again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Final, Protocol
from zlib import crc32

from bloomredis.derived import derived
from bloomredis.operations.items.membership import ADD
from bloomredis.operations.kinds.filter import FilterOperations
from bloomredis.protocol.forks import register_after_fork
from bloomredis.protocol.receipts import Session, Sessions
from bloomredis.protocol.steps import Op, Part, Reply
from bloomredis.stored.state.base import CONTAINS
from bloomredis.stored.state.item_calls import FilterCall


class AnyPipeline(Protocol):
    """A pipeline of redis-py or valkey-py: sync or asyncio, of one server or of a cluster."""

    @property
    def execute_command(self) -> Callable[..., object]:
        """Queue a command."""


class _Filling:
    """A pipeline while it is being filled."""

    def __init__(self, sessions: Sessions) -> None:
        self.queue: object = None
        self._loaded: set[str] = set()
        self._source = sessions
        self._sessions: list[Session] = []
        self._used = 0

    def __del__(self) -> None:
        """Give the sessions back, since the pipeline is gone."""
        for session in self._sessions:
            session.free.append(session)

    def begin(self, queue: object) -> None:
        """Begin again after the pipeline was executed."""
        self.queue, self._used = queue, 0
        self._loaded.clear()

    def session(self) -> Session:
        """Return a session for one queued call; the next filling of the pipeline reuses it."""
        if self._used == len(self._sessions):
            self._sessions.append(self._source.take())
        self._used += 1
        return self._sessions[self._used - 1]

    def put(self, pipe: AnyPipeline, call: FilterCall[Reply]) -> None:
        """Queue a script call."""
        script = call.script
        if script.sha in self._loaded:
            pipe.execute_command("EVALSHA", script.sha, *call.tail)
        else:
            pipe.execute_command("EVAL", script.text, *call.tail)
            self._loaded.add(script.sha)


class Pipelines:
    """The pipelines on which calls of one filter object are queued."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self.after_fork()

    def after_fork(self) -> None:
        """Begin without pipelines: a forked child has its own sessions."""
        self._fillings: weakref.WeakKeyDictionary[AnyPipeline, _Filling] = weakref.WeakKeyDictionary()
        register_after_fork(self)

    def __reduce__(self) -> tuple[type[Pipelines], tuple[Sessions]]:
        return Pipelines, (self._sessions,)  # another process has other pipelines

    def filling(self, pipe: AnyPipeline) -> _Filling:
        """Return the filling of a pipeline.

        :raises TypeError: this is no pipeline.
        :raises ValueError: the pipeline would execute a call at once.
        """
        if type(pipe) not in _pipelines:
            if not any("Pipeline" in kind.__name__ for kind in type(pipe).__mro__):
                raise TypeError(
                    f"pipe must be a pipeline, as of client.pipeline(), not {type(pipe).__name__}"
                )
            _pipelines.add(type(pipe))
        if getattr(pipe, "watching", False) and not getattr(pipe, "explicit_transaction", False):
            raise ValueError("the pipeline is watching keys and executes at once; call pipe.multi() first")
        filling = self._fillings.get(pipe)
        if filling is None:
            filling = self._fillings[pipe] = _Filling(self._sessions)
        if (queue := _queue(pipe)) is not filling.queue:
            filling.begin(queue)
        return filling


_pipelines: Final[weakref.WeakSet[type]] = weakref.WeakSet()
"""Classes known to be pipelines."""


def _queue(pipe: AnyPipeline) -> object:
    """Return the list of a pipeline's queued commands; all clients make a new list after `execute()`."""
    strategy = getattr(pipe, "_execution_strategy", pipe)
    queue = getattr(strategy, "_command_queue", None)
    return getattr(pipe, "command_stack", None) if queue is None else queue


class Queueing(FilterOperations):
    """Operations queued on a caller's pipeline, for filters whose keys never change."""

    @derived
    def _pipelines(self) -> Pipelines:
        return Pipelines(self.sessions)

    def queue(self, pipe: AnyPipeline, item: object, *, adds: bool) -> Op[None]:
        """Queue an add or a test; its result in `pipe.execute()` is 1 or 0."""
        stored = self.stored
        handle = yield from stored.acquire() if adds else stored.existing()
        packed, filling = handle.layout.pack_one(self.codec.encode(item)), self._pipelines.filling(pipe)
        if not adds:
            filling.put(pipe, stored.call(CONTAINS, handle, [packed], reads=True))
            return
        keys: list[bytes] = []
        arguments: list[Part] = [packed]
        if self.options.retry_safe:
            session = filling.session()
            arguments.append(session.next_call(crc32(packed, handle.check)))
            keys.append(session.key)
        # Only an object that refuses items of a full filter may find a refusal among the pipeline's results.
        filling.put(pipe, stored.call(ADD, handle, arguments, keys, unlimited=not stored.refuses))
