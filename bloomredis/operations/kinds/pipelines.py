"""Calls queued on a pipeline of the caller's own, which cannot be answered with NOSCRIPT.

The first call of a script in a pipeline goes as EVAL, which loads it; the others behind it are EVALSHA.  A
pipeline that is executed and filled again begins again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Final, Protocol
from zlib import crc32

from bloomredis.operations.kinds.filter import FilterOperations
from bloomredis.operations.options import Options
from bloomredis.protocol.forks import renewed_after_fork
from bloomredis.protocol.receipts import Lane, Lanes, give_back
from bloomredis.protocol.steps import Op
from bloomredis.stored.foreign.bitmap import ForeignLayout
from bloomredis.stored.state.base import Stored
from bloomredis.stored.state.item_calls import Add, Contains, ItemCall


class AnyPipeline(Protocol):
    """A pipeline of redis-py or valkey-py: sync or asyncio, of one server or of a cluster."""

    @property
    def execute_command(self) -> Callable[..., object]:
        """Queue a command."""


class _Filling:
    """A pipeline while it is being filled."""

    def __init__(self, lanes: Lanes) -> None:
        self.queue: object = None
        self._loaded: set[str] = set()
        self._source = lanes
        self._lanes: list[Lane] = []
        self._used = 0

    def __del__(self) -> None:
        """Give the lanes back when the pipeline is gone."""
        for lane in self._lanes:
            give_back(lane)

    def begin(self, queue: object) -> None:
        """Begin again, the pipeline having been executed."""
        self.queue, self._used = queue, 0
        self._loaded.clear()

    def lane(self) -> Lane:
        """Return a lane for one queued call; it is used again when the pipeline is filled again."""
        if self._used == len(self._lanes):
            self._lanes.append(self._source.take())
        self._used += 1
        return self._lanes[self._used - 1]

    def put(self, pipe: AnyPipeline, call: ItemCall) -> None:
        """Queue a call of a script."""
        script = call.script
        if script.sha in self._loaded:
            pipe.execute_command("EVALSHA", script.sha, *call.tail)
        else:
            pipe.execute_command("EVAL", script.text, *call.tail)
            self._loaded.add(script.sha)


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

    def filling(self, pipe: AnyPipeline) -> _Filling:
        """Return what is known of a pipeline.

        :raises TypeError: it is none.
        :raises ValueError: it would execute a call at once.
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
            filling = self._fillings[pipe] = _Filling(self._lanes)
        if (queue := _queue(pipe)) is not filling.queue:
            filling.begin(queue)
        return filling


_pipelines: Final[weakref.WeakSet[type]] = weakref.WeakSet()
"""Classes that have been seen to be pipelines."""


def _queue(pipe: AnyPipeline) -> object:
    """Return the list of a pipeline's queued commands; all clients begin another one after `execute()`."""
    strategy = getattr(pipe, "_execution_strategy", pipe)
    queue = getattr(strategy, "_command_queue", None)
    return getattr(pipe, "command_stack", None) if queue is None else queue


class Queueing(FilterOperations):
    """The verbs that are queued on a caller's pipeline, of filters whose keys never change."""

    def __init__(
        self,
        stored: Stored,
        options: Options,
        *,
        foreign: ForeignLayout | None = None,
        cache_check: float | None = None,
    ) -> None:
        super().__init__(stored, options, foreign=foreign, cache_check=cache_check)
        self._pipelines = Pipelines(self.lanes)

    def queue_add(self, pipe: AnyPipeline, item: object) -> Op[None]:
        """Queue an add; that place in `pipe.execute()` holds 1 or 0."""
        handle = yield from self.stored.acquire()
        encoded = self.codec.encode(item)
        packed, filling = handle.layout.pack_one(encoded), self._pipelines.filling(pipe)
        lane = None
        if self.options.retry_safe:
            lane = filling.lane()
            lane.next_call(crc32(packed, handle.check))
        filling.put(pipe, Add(self.membership.template(handle), packed, lane, (encoded,), 0.0))

    def queue_contains(self, pipe: AnyPipeline, item: object) -> Op[None]:
        """Queue a test; that place in `pipe.execute()` holds 1 or 0."""
        handle = yield from self.stored.acquire()
        packed, filling = handle.layout.pack_one(self.codec.encode(item)), self._pipelines.filling(pipe)
        filling.put(pipe, Contains(self.membership.template(handle), packed))
