"""Calls queued on a pipeline of the caller's own, which cannot be answered with NOSCRIPT.

The first call of a script in a pipeline goes as EVAL, which loads it; the others behind it are EVALSHA.  A
pipeline that is executed and filled again begins again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Protocol
from zlib import crc32

from bloomredis.operations.filter import FilterOperations
from bloomredis.operations.membership import ADD, CONTAINS
from bloomredis.protocol.forks import renewed_after_fork
from bloomredis.protocol.receipts import Lane, Lanes, give_back
from bloomredis.protocol.scripts import Script
from bloomredis.protocol.steps import Command, Op
from bloomredis.stored.handle import Handle


class AnyPipeline(Protocol):
    """A pipeline of redis-py or valkey-py: sync or asyncio, of one server or of a cluster."""

    @property
    def execute_command(self) -> Callable[..., Any]:
        """Queue a command."""


class _Filling:
    """A pipeline while it is being filled."""

    def __init__(self) -> None:
        self.queue: object = None
        self.loaded: set[str] = set()
        self.lanes: list[Lane] = []
        self.used = 0


class Pipelines:
    """The pipelines on which calls of one filter object are queued."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self.renew()

    def renew(self) -> None:
        """Begin with no pipeline: a forked child has lanes of its own."""
        self._fillings: weakref.WeakKeyDictionary[AnyPipeline, _Filling] = weakref.WeakKeyDictionary()
        renewed_after_fork(self)

    def __reduce__(self) -> tuple[type[Pipelines], tuple[Lanes]]:
        return Pipelines, (self._lanes,)  # another process has other pipelines

    def queue(self, pipe: AnyPipeline, script: Script, command: Callable[[str, str], Command]) -> None:
        """Queue `command(verb, script)`, verb and script being EVAL and a text, or EVALSHA and a SHA."""
        filling = self._filling(pipe)
        if script.sha in filling.loaded:
            pipe.execute_command(*command("EVALSHA", script.sha))
        else:
            pipe.execute_command(*command("EVAL", script.text))
            filling.loaded.add(script.sha)

    def lane(self, pipe: AnyPipeline) -> Lane:
        """Return a lane for one queued call; it is used again when the pipeline is filled again."""
        filling = self._filling(pipe)
        if filling.used == len(filling.lanes):
            filling.lanes.append(self._lanes.take())
        filling.used += 1
        return filling.lanes[filling.used - 1]

    def _filling(self, pipe: AnyPipeline) -> _Filling:
        if getattr(pipe, "watching", False) and not getattr(pipe, "explicit_transaction", False):
            raise ValueError("the pipeline is watching keys and executes at once; call pipe.multi() first")
        if not any("Pipeline" in kind.__name__ for kind in type(pipe).__mro__):
            raise TypeError(f"pipe must be a pipeline, as of client.pipeline(), not {type(pipe).__name__}")
        filling = self._fillings.get(pipe)
        if filling is None:
            filling = self._fillings[pipe] = _Filling()
            weakref.finalize(pipe, _give_back, filling.lanes)
        if (queue := _queue(pipe)) is not filling.queue:
            filling.queue, filling.used = queue, 0
            filling.loaded.clear()
        return filling


def _give_back(lanes: list[Lane]) -> None:
    for lane in lanes:
        give_back(lane)


def _queue(pipe: AnyPipeline) -> object:
    """Return the list of a pipeline's queued commands; all clients begin another one after `execute()`."""
    strategy = getattr(pipe, "_execution_strategy", pipe)
    queue = getattr(strategy, "_command_queue", None)
    return getattr(pipe, "command_stack", None) if queue is None else queue


class Queueing(FilterOperations):
    """The verbs that are queued on a caller's pipeline, of filters whose keys never change."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._pipelines = Pipelines(self.lanes)

    def queue_add(self, pipe: AnyPipeline, item: Any) -> Op[None]:
        """Queue an add; that place in `pipe.execute()` holds 1 or 0."""
        handle = yield from self.stored.acquire()
        packed = handle.layout.pack_one(self.codec.encode(item))
        keys, values = [handle.key], [handle.identity, packed]
        if self.options.retry_safe:
            lane = self._pipelines.lane(pipe)
            keys.append(lane.key)
            values.append(lane.next_call(crc32(packed, handle.check)).encode())
        keys += handle.extra
        self._queue(pipe, ADD, handle, (len(keys), *keys, *values))

    def queue_contains(self, pipe: AnyPipeline, item: Any) -> Op[None]:
        """Queue a test; that place in `pipe.execute()` holds 1 or 0."""
        handle = yield from self.stored.acquire()
        packed = handle.layout.pack_one(self.codec.encode(item))
        keys = (handle.key, *handle.extra)
        self._queue(pipe, CONTAINS, handle, (len(keys), *keys, handle.identity, packed))

    def _queue(self, pipe: AnyPipeline, script: Script, handle: Handle, tail: Command) -> None:
        version = self.stored.script(script, handle.version)
        self._pipelines.queue(pipe, version, lambda verb, code: (verb, code, *tail))
