"""The filters over asyncio clients: `redis.asyncio.Redis`, its cluster client and valkey's twins.

The same classes and calls as in `bloomredis`, as coroutines.  Concurrent calls on one filter share
round trips by themselves (`coalesce`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Sequence,
)
from datetime import timedelta
from itertools import compress
from typing import Any, ClassVar, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar, cast
from weakref import WeakKeyDictionary

from bloomredis import clusters
from bloomredis.arguments import listed
from bloomredis.batches import async_batches
from bloomredis.binding import Bound, built_by, documented_by, presented_as
from bloomredis.claims import ClaimView, Held
from bloomredis.coalesce import MOST_ITEMS, Waiting, gathered, outcomes, take
from bloomredis.counting import CountingOperations
from bloomredis.errors import BatchInterruptedError
from bloomredis.filter import DEDUPE_ITEMS, LOAD_ITEMS, FilterOperations
from bloomredis.hashing import Item
from bloomredis.layers import RotatingOperations, ScalingOperations
from bloomredis.partitioned import operations
from bloomredis.pipelines import AnyPipeline
from bloomredis.protocol import At, Command, Once, Op, Read, Several, Step, Together
from bloomredis.sharded import ShardedOperations
from bloomredis.together import commands_of, regrouped

__all__ = [
    "BloomFilter",
    "Claim",
    "CountingBloomFilter",
    "RotatingBloomFilter",
    "ScalingBloomFilter",
    "ShardedBloomFilter",
]

P = ParamSpec("P")
T = TypeVar("T")
I = TypeVar("I", bound=Item)  # noqa: E741 - the items

MOST_UNDER_WAY: Final = 2
"""Batches under way at once: one in the server while the next is packed and the last handed out."""

FEWEST_ITEMS: Final = 64
"""Items worth a batch of their own while another is under way: each batch costs this process some 150 µs."""


class AsyncClient(Protocol):
    """What is needed of a client."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command and return its reply."""

    def pipeline(self, *, transaction: bool) -> Any:
        """Return a pipeline, which sends several commands over one connection."""


async def drive(
    client: AsyncClient,
    operation: Generator[Any, Any, T],
    execute: Callable[[Any, Any], Awaitable[Any]] | None = None,
) -> T:
    """Execute an operation's commands until it has its answer."""
    execute = execute or _execute
    try:
        step = next(operation)
        while True:
            try:
                reply = await execute(client, step)
            except Exception as error:
                step = operation.throw(error)
            else:
                step = operation.send(reply)
    except StopIteration as end:
        answer: T = end.value
        return answer
    finally:
        operation.close()  # it learns at once that it was interrupted or cancelled


async def _execute(client: AsyncClient, step: Step) -> Any:
    if isinstance(step, Together):
        return await _together(client, step.steps)
    if isinstance(step, At):
        return await _execute(client[step.server], step.step)  # type: ignore[index]  # one of several
    if clusters.is_cluster(type(client)):
        return await drive(client, clusters.run(client, step), _act)
    if isinstance(step, Several):
        together = [each for one in step.steps for each in commands_of(one)]
        return regrouped(step.steps, await _execute(client, together))
    if isinstance(step, Read):
        step = step.command
    elif isinstance(step, Once):
        step = step.step
    if isinstance(step, tuple):
        return await client.execute_command(*step, NEVER_DECODE=True)  # bits are no text
    pipe = client.pipeline(transaction=False)
    for command in step:
        pipe.execute_command(*command, NEVER_DECODE=True)
    return await pipe.execute(raise_on_error=False)


async def _together(client: AsyncClient, steps: Sequence[Step]) -> list[Any]:
    return await _at_once([_execute(client, step) for step in steps])


async def _at_once(calls: Sequence[Awaitable[Any]]) -> list[Any]:
    told = await asyncio.gather(*calls, return_exceptions=True)
    for reply in told:
        if isinstance(reply, BaseException) and not isinstance(reply, Exception):
            raise reply  # one of them was cancelled from outside
    return told


async def _act(client: Any, act: clusters.Act) -> Any:
    """Perform an act on a cluster."""
    if isinstance(act, clusters.Send):
        return await _send(act)
    if isinstance(act, clusters.SendAll):
        return await _at_once([_send(send) for send in act.sends])
    if isinstance(act, clusters.Pause):
        return await asyncio.sleep(act.seconds)
    if isinstance(act, clusters.Learn):
        return await _learn(client, act)
    if isinstance(act, clusters.Refresh):
        return await client.nodes_manager.initialize()
    await client.initialize()  # reads the map, unless it was
    return clusters.look_up(client, act)


_learning: Final[WeakKeyDictionary[Any, dict[Any, asyncio.Future[Any]]]] = WeakKeyDictionary()
"""What clients are about to learn, by the keys."""


async def _learn(client: Any, act: clusters.Learn) -> None:
    # All tasks that wait for a filter are told at once that it has moved.  They learn together, since
    # a client that is redirected often enough closes its connections, those of other tasks too.
    under_way = _learning.setdefault(client, {})
    if act.key not in under_way:
        probe = clusters.probe(client, act)
        if probe is None:
            return
        learning = asyncio.ensure_future(client.execute_command(*probe))
        under_way[act.key] = learning

        def learnt(done: asyncio.Future[Any]) -> None:
            del under_way[act.key]
            _ = done.cancelled() or done.exception()  # which each of those who wait is told, if any does

        learning.add_done_callback(learnt)
    await asyncio.shield(under_way[act.key])


async def _send(act: clusters.Send) -> list[Any]:
    if len(act.commands) == 1:
        return [await act.node.execute_command(*act.commands[0], NEVER_DECODE=True)]
    queued = [_Queued(command) for command in act.commands]
    await act.node.execute_pipeline(queued)
    return [each.result for each in queued]


class _Queued:
    """A command, as the nodes of an asyncio cluster client want it for a pipeline."""

    def __init__(self, command: Command) -> None:
        self.args = command
        self.kwargs: dict[str, Any] = {"NEVER_DECODE": True}
        self.result: Any = None


class _Passenger(Waiting):
    """How a task waits."""

    __slots__ = ("future",)

    def __init__(
        self, items: Sequence[str | bytes], source: Sequence[Any] | None, future: asyncio.Future[Any]
    ) -> None:
        self.items = items
        self.source = source
        self.future = future


class _Carriage:
    """Carries the calls of one verb; those that find others under way travel together."""

    def __init__(
        self,
        client: AsyncClient,
        operations: FilterOperations,
        verb: Callable[[list[str | bytes]], Op[list[bool]]],
    ) -> None:
        self._client = client
        self._operations = operations
        self._verb = verb
        self._loop: asyncio.AbstractEventLoop | None = None

    def carry(
        self,
        items: Sequence[str | bytes],
        source: Sequence[Any] | None,
        alone: Callable[[Any], Op[Any]],
        argument: object,
    ) -> Awaitable[Any]:
        """Send a call at once, as `alone(argument)`, if nobody is under way; else with the next batch."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._enter(loop)
        if self._batches == 0 and not self._queue and not self._scheduled:
            return self._travel_alone(items, alone(argument))
        future: asyncio.Future[Any] = loop.create_future()
        self._queue.append(_Passenger(items, source, future))
        if not self._scheduled:
            self._schedule()
        return future

    def _enter(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None and not self._loop.is_closed():
            raise RuntimeError(
                f"the filter {self._operations.name!r} is in use in another event loop; "
                "make a client in this one and use filter.with_client(client)"
            )
        self._loop = loop
        self._queue: deque[_Passenger] = deque()
        self._items: set[str | bytes] = set()  # under way, in so many batches:
        self._batches = 0
        self._scheduled = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def _travel_alone(self, items: Sequence[str | bytes], operation: Op[T]) -> T:
        self._take_off(items)
        try:
            return await drive(self._client, operation)
        finally:
            self._batches -= 1
            self._items.difference_update(items)
            if self._queue:
                self._schedule()

    async def _travel(self, batch: list[_Passenger], items: list[str | bytes]) -> None:
        answers: list[bool] | Exception
        try:
            try:
                answers = await drive(self._client, self._verb(items))
            except Exception as error:
                answers = error
            for passenger, outcome in outcomes(self._operations, batch, answers):
                future = passenger.future
                if future.done():
                    continue
                if isinstance(outcome, Exception):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)
        except BaseException:
            for passenger in batch:
                passenger.future.cancel()
            raise
        finally:
            self._land(items)  # last, so that those who are told now come back before the next departure

    def _take_off(self, items: Sequence[str | bytes]) -> None:
        self._batches += 1
        self._items.update(items)

    def _land(self, items: Sequence[str | bytes]) -> None:
        self._batches -= 1
        self._items.difference_update(items)
        self._schedule()

    def _schedule(self) -> None:
        # Departure is left to the end of the loop's turn, so that all tasks that are being woken up
        # now get on board.
        if not self._scheduled and self._batches < MOST_UNDER_WAY:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._depart)

    def _depart(self) -> None:
        self._scheduled = False
        while self._queue and self._batches < MOST_UNDER_WAY:
            # Half of all calls, so that two halves take turns in the server and here.
            half = max(FEWEST_ITEMS, (len(self._queue) + len(self._items) + 1) // 2)
            if self._batches and len(self._queue) < half:
                return  # the landing of the others schedules the next departure
            taken = take(self._queue, min(MOST_ITEMS, half), self._items)
            if not taken:
                return  # the landing of what bars it schedules the next departure
            if batch := [passenger for passenger in taken if not passenger.future.done()]:
                items = gathered(batch)
                self._take_off(items)
                task = asyncio.get_running_loop().create_task(self._travel(batch, items))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)


def run(
    operation: Callable[Concatenate[Any, P], Op[T]],
) -> Callable[Concatenate[BloomFilter, P], Coroutine[Any, Any, T]]:
    """Return the coroutine method that executes an operation."""

    async def method(self: BloomFilter, /, *args: P.args, **kwargs: P.kwargs) -> T:
        call: Op[T] = getattr(self._operations, operation.__name__)(*args, **kwargs)
        return await drive(self._client, call)

    presented_as(operation, method)
    return method


class Claim(ClaimView):
    __doc__ = ClaimView.__doc__

    def __init__(self, client: AsyncClient, operations: FilterOperations, held: Held) -> None:
        super().__init__(held)
        self._client = client
        self._operations = operations

    @documented_by(FilterOperations.commit)
    async def commit(self) -> None:
        await drive(self._client, self._operations.commit(self._held))

    @documented_by(FilterOperations.release)
    async def release(self) -> None:
        await drive(self._client, self._operations.release(self._held))

    @documented_by(FilterOperations.extend)
    async def extend(self, lease: float | timedelta) -> None:
        await drive(self._client, self._operations.extend(self._held, lease))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if kind is None and self:
            await self.commit()
        elif self:
            try:
                await self.release()
            except Exception as failure:
                self._not_released(failure)


class Claiming:
    """A claim on its way: await it, or enter it with `async with`."""

    def __init__(self, claiming: Coroutine[Any, Any, Claim]) -> None:
        self._claiming = claiming

    def __await__(self) -> Generator[Any, Any, Claim]:
        return self._claiming.__await__()

    async def __aenter__(self) -> Claim:
        self._claim = await self._claiming
        return self._claim

    async def __aexit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        await self._claim.__aexit__(kind, error, traceback)


class BloomFilter(Bound[AsyncClient, FilterOperations]):
    __doc__ = FilterOperations.__doc__

    _operations_class: ClassVar[type[FilterOperations]] = FilterOperations
    _is_asyncio = True

    @built_by(FilterOperations, operations)
    def __init__(self, client: AsyncClient, operations: FilterOperations) -> None:
        Bound.__init__(self, client, operations)

    def _bind(self) -> None:
        operations = self._operations
        self._coalesce = operations.coalesce is not False
        self._adds = _Carriage(self._client, operations, lambda items: operations.add_encoded(items, items))
        self._tests = _Carriage(self._client, operations, operations.contains_encoded)

    @classmethod
    async def open(cls, client: AsyncClient, name: str) -> Self:
        """Return a filter whose parameters are read from the server.

        :raises FilterNotFoundError: there is none.
        """
        opened = cls.__new__(cls)
        Bound.__init__(opened, client, cls._operations_class.unopened(name))
        await opened.reserve()
        return opened

    @documented_by(FilterOperations.add)
    async def add(self, item: Item, *, token: str | None = None) -> bool:
        operations = self._operations
        if token is None and operations.known(item):
            return False
        if token is not None or not self._coalesce:
            return await drive(self._client, operations.add(item, token=token))
        answer: bool = await self._adds.carry((operations.hashable(item),), None, operations.add, item)
        return answer

    @documented_by(FilterOperations.contains)
    async def contains(self, item: Item) -> bool:
        operations = self._operations
        if operations.known(item):
            return True
        if not self._coalesce:
            return await drive(self._client, operations.contains(item))
        answer: bool = await self._tests.carry((operations.hashable(item),), None, operations.contains, item)
        return answer

    @documented_by(FilterOperations.add_many)
    async def add_many(self, items: Iterable[Item]) -> list[bool]:
        operations, batch = self._operations, listed(items)
        if not self._coalesce or not 0 < len(batch) < MOST_ITEMS:
            return await drive(self._client, operations.add_many(batch))
        encoded = [operations.hashable(item) for item in batch]
        answers: list[bool] = await self._adds.carry(encoded, batch, operations.add_many, batch)
        return answers

    @documented_by(FilterOperations.contains_many)
    async def contains_many(self, items: Iterable[Item]) -> list[bool]:
        operations, batch = self._operations, listed(items)
        if not self._coalesce or not 0 < len(batch) < MOST_ITEMS:
            return await drive(self._client, operations.contains_many(batch))
        encoded = [operations.hashable(item) for item in batch]
        answers: list[bool] = await self._tests.carry(encoded, batch, operations.contains_many, batch)
        return answers

    async def dedupe(self, items: Iterable[I] | AsyncIterable[I]) -> AsyncIterator[I]:
        """Yield those of the items that were new, in order, as they are read.

        The items are sent in batches of up to 1,000, so that many are added before the first of them
        is yielded.  Where a batch is interrupted, its items that are known to be new are yielded
        before the error is raised; `error.rest` has those without an answer.
        """
        async for batch in async_batches(items, DEDUPE_ITEMS):
            try:
                answers = await self.add_many(batch)
            except BatchInterruptedError as error:
                for item in compress(batch, error.results):
                    yield item
                raise
            for item in compress(batch, answers):
                yield item

    @documented_by(FilterOperations.load)
    async def load(
        self,
        items: Iterable[Item] | AsyncIterable[Item],
        progress: Callable[[int], object] | None = None,
    ) -> int:
        operations, loop = self._operations, asyncio.get_running_loop()
        load = operations.loading(await drive(self._client, operations.opened()))
        done = 0

        async def send() -> None:
            nonlocal done
            done += load.items
            opened = await drive(self._client, operations.load(load))
            added = await loop.run_in_executor(None, load.finish)
            await drive(self._client, operations.tally(opened, added))
            if progress is not None:
                progress(done)

        # What takes long here is left to a thread: the loop has other things to do.
        async for batch in async_batches(items, LOAD_ITEMS):
            await loop.run_in_executor(None, load.take, batch)
            if load.is_full:
                await send()
        if load.items:
            await send()
        return done

    @documented_by(FilterOperations.claim)
    def claim(self, item: Item, lease: float | timedelta = 30.0) -> Claiming:
        return Claiming(drive(self._client, self._operations.claim(item, lease, self._claim)))

    @documented_by(FilterOperations.claim_many)
    async def claim_many(self, items: Iterable[Item], lease: float | timedelta = 30.0) -> list[Claim]:
        return await drive(self._client, self._operations.claim_many(items, lease, self._claim))

    def _claim(self, held: Held) -> Claim:
        return Claim(self._client, self._operations, held)

    async def queue_add(self, pipe: AnyPipeline, item: Item) -> None:
        """Queue an add on a pipeline of the caller's; that place in `pipe.execute()` holds 1 or 0.

        In a MULTI it takes part in the transaction.  The filter is opened first if it is not yet, with
        its own client.
        """
        opened = await drive(self._client, self._operations.opened(item))
        self._operations.queue_add(opened, pipe, item)

    async def queue_contains(self, pipe: AnyPipeline, item: Item) -> None:
        """Queue a test on a pipeline of the caller's; that place in `pipe.execute()` holds 1 or 0."""
        opened = await drive(self._client, self._operations.opened(item))
        self._operations.queue_contains(opened, pipe, item)

    reserve = run(FilterOperations.reserve)
    info = run(FilterOperations.info)
    approximate_count = run(FilterOperations.approximate_count)
    snapshot = run(FilterOperations.snapshot)
    clear = run(FilterOperations.clear)
    delete = run(FilterOperations.delete)
    expire = run(FilterOperations.expire)


class ScalingBloomFilter(BloomFilter):
    __doc__ = ScalingOperations.__doc__
    _operations_class = ScalingOperations

    @built_by(ScalingOperations)
    def __init__(self, client: AsyncClient, operations: ScalingOperations) -> None:
        Bound.__init__(self, client, operations)


class RotatingBloomFilter(BloomFilter):
    __doc__ = RotatingOperations.__doc__
    _operations_class = RotatingOperations

    @built_by(RotatingOperations)
    def __init__(self, client: AsyncClient, operations: RotatingOperations) -> None:
        Bound.__init__(self, client, operations)


class ShardedBloomFilter(BloomFilter):
    __doc__ = ShardedOperations.__doc__
    _operations_class = ShardedOperations

    @built_by(ShardedOperations)
    def __init__(self, client: AsyncClient | Sequence[AsyncClient], operations: ShardedOperations) -> None:
        operations.over(len(client) if isinstance(client, list | tuple) else 1)
        Bound.__init__(self, cast("AsyncClient", client), operations)

    @classmethod
    async def open(cls, client: AsyncClient | Sequence[AsyncClient], name: str) -> Self:
        """Return a filter whose parameters are read from the server.

        :raises FilterNotFoundError: there is none.
        :raises FilterLostError: the root is there and a shard is not; a filter that is made with the
            constructor goes on without it after `reserve()`.
        """
        opened = cls(client, name)
        await opened.reserve()
        return opened


class CountingBloomFilter(BloomFilter):
    __doc__ = CountingOperations.__doc__
    _operations_class = CountingOperations

    @built_by(CountingOperations)
    def __init__(self, client: AsyncClient, operations: FilterOperations) -> None:
        Bound.__init__(self, client, operations)

    remove = run(CountingOperations.remove)
