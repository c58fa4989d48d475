"""The filters over synchronous clients: `redis.Redis`, `redis.RedisCluster` and valkey's twins."""

from __future__ import annotations

import itertools
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from functools import partial
from itertools import chain, compress
from typing import Any, ClassVar, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar, cast

from bloomredis import clusters
from bloomredis.arguments import listed
from bloomredis.batches import batches
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
from bloomredis.protocol import At, Once, Op, Read, Several, Step, Together
from bloomredis.sharded import ShardedOperations
from bloomredis.together import commands_of, regrouped

P = ParamSpec("P")
T = TypeVar("T")
I = TypeVar("I", bound=Item)  # noqa: E741 - the items


WOKEN_TOGETHER: Final = 2
"""Threads of a batch that are woken before each wakes a later one: more would queue for the interpreter."""


MOST_HELPERS: Final = 32
"""Threads, for the whole process, that wait for other servers of a filter on several."""


class SyncClient(Protocol):
    """What is needed of a client."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command and return its reply."""

    def pipeline(self, *, transaction: bool) -> Any:
        """Return a pipeline, which sends several commands over one connection."""


def drive(
    client: SyncClient, operation: Generator[Any, Any, T], execute: Callable[[Any, Any], Any] | None = None
) -> T:
    """Execute an operation's commands until it has its answer."""
    execute = execute or _execute
    try:
        step = next(operation)
        while True:
            try:
                reply = execute(client, step)
            except Exception as error:
                step = operation.throw(error)
            else:
                step = operation.send(reply)
    except StopIteration as end:
        answer: T = end.value
        return answer
    finally:
        operation.close()  # it learns at once that it was interrupted or cancelled


def _execute(client: SyncClient, step: Step) -> Any:
    if isinstance(step, Together):
        return _together(client, step.steps)
    if isinstance(step, At):
        return _execute(client[step.server], step.step)  # type: ignore[index]  # one of several
    if clusters.is_cluster(type(client)):
        return drive(client, clusters.run(client, step), _act)
    if isinstance(step, Several):
        together = [each for one in step.steps for each in commands_of(one)]
        return regrouped(step.steps, _execute(client, together))
    if isinstance(step, Read):
        step = step.command
    elif isinstance(step, Once):
        step = step.step
    if isinstance(step, tuple):
        return client.execute_command(*step, NEVER_DECODE=True)  # bits are no text
    pipe = client.pipeline(transaction=False)
    for command in step:
        pipe.execute_command(*command, NEVER_DECODE=True)
    return pipe.execute(raise_on_error=False)


def _together(client: SyncClient, steps: Sequence[Step]) -> list[Any]:
    return _at_once([partial(_execute, client, step) for step in steps])


def _at_once(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Make the first call here and the others in threads, or here if no thread is free by then."""

    def outcome(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            return error

    helping = [_helpers().submit(outcome, call) for call in calls[1:]]
    try:
        told = [outcome(calls[0])]
        for call, future in zip(calls[1:], helping, strict=True):
            told.append(outcome(call) if future.cancel() else future.result())
    finally:  # interrupted or not, nothing goes on unnoticed
        wait([future for future in helping if not future.cancel()])
    return told


_pool: ThreadPoolExecutor | None = None


def _helpers() -> ThreadPoolExecutor:
    global _pool  # noqa: PLW0603 - one for the process, made when it is first needed
    if _pool is None:
        _pool = ThreadPoolExecutor(MOST_HELPERS, thread_name_prefix="bloomredis")
    return _pool


def _act(client: Any, act: clusters.Act) -> Any:
    """Perform an act on a cluster."""
    if isinstance(act, clusters.Send):
        connect = getattr(client, "get_redis_connection", None) or client.get_valkey_connection
        if len(act.commands) == 1:
            return [connect(act.node).execute_command(*act.commands[0], NEVER_DECODE=True)]
        return _execute(connect(act.node), act.commands)
    if isinstance(act, clusters.SendAll):
        return _at_once([partial(_act, client, send) for send in act.sends])
    if isinstance(act, clusters.Pause):
        return time.sleep(act.seconds)
    if isinstance(act, clusters.Learn | clusters.Refresh):
        return _learn(client, act)
    return clusters.look_up(client, act)


def _learn(client: Any, act: clusters.Learn | clusters.Refresh) -> None:
    if isinstance(act, clusters.Refresh):
        client.nodes_manager.initialize()
    elif probe := clusters.probe(client, act):
        client.execute_command(*probe)


class _Turn(Waiting):
    """How a thread waits: for the outcome of its call, or for a batch to carry that its call is in."""

    __slots__ = ("batch", "lock", "outcome", "wakes")

    def __init__(self, items: Sequence[str | bytes], source: Sequence[Any] | None) -> None:
        self.items = items
        self.source = source
        self.lock = threading.Lock()
        self.lock.acquire()
        self.outcome: Any = None
        self.batch: _Batch | None = None
        self.wakes: _Turn | None = None


class _Batch:
    """Calls that travel together, and how many of their threads have got away since."""

    __slots__ = ("_left", "turns")

    def __init__(self, turns: list[_Turn]) -> None:
        self.turns = turns
        self._left = itertools.count(1)

    def leave(self) -> bool:
        """Return True for the last thread that gets away; safe without a lock."""
        return next(self._left) == len(self.turns)


class _Carriage:
    """Carries the calls of one verb; one thread carries what the others have waiting.

    The next batch leaves when all threads of the last one have got away, so that those which come back
    at once are on board.  They are woken a few at a time, since they run one at a time.

    The main thread goes alone: Ctrl-C and signal handlers interrupt it anywhere, so no other thread may
    rely on it.
    """

    def __init__(
        self,
        client: SyncClient,
        operations: FilterOperations,
        verb: Callable[[list[str | bytes]], Op[list[bool]]],
    ) -> None:
        self._client = client
        self._operations = operations
        self._verb = verb
        self.reset()
        _carriages.add(self)

    def reset(self) -> None:
        """Begin anew: in a forked child, whose parent's threads are not here to carry anything."""
        self._mutex = threading.Lock()
        self._queue: deque[_Turn] = deque()
        self._busy = False

    def carry(
        self,
        items: Sequence[str | bytes],
        source: Sequence[Any] | None,
        alone: Callable[[Any], Op[Any]],
        argument: object,
    ) -> Any:
        """Send a call at once, as `alone(argument)`, if nobody is under way; else with the next batch."""
        if threading.current_thread() is threading.main_thread():
            return drive(self._client, alone(argument))
        with self._mutex:
            turn = _Turn(items, source) if self._busy else None
            if turn is not None:
                self._queue.append(turn)
            self._busy = True
        if turn is None:
            try:
                return drive(self._client, alone(argument))
            finally:
                self._depart()
        turn.lock.acquire()
        self._get_away(turn)
        if isinstance(turn.outcome, Exception):
            raise turn.outcome
        return turn.outcome

    def _get_away(self, turn: _Turn) -> None:
        batch = turn.batch
        assert batch is not None  # noqa: S101 - only a departure or a landing releases the lock
        if turn is batch.turns[0]:
            self._travel(batch)
        elif turn.wakes is not None:
            turn.wakes.lock.release()
        if batch.leave():
            self._depart()

    def _travel(self, batch: _Batch) -> None:
        turns = batch.turns
        answers: list[bool] | Exception
        try:
            answers = drive(self._client, self._verb(gathered(turns)))
        except Exception as error:
            answers = error
        for turn, outcome in outcomes(self._operations, turns, answers):
            turn.outcome = outcome
        for turn, later in zip(turns[1:], turns[1 + WOKEN_TOGETHER :], strict=False):
            turn.wakes = later
        for turn in turns[1 : 1 + WOKEN_TOGETHER]:
            turn.lock.release()

    def _depart(self) -> None:
        """Hand what waits to the thread of the first call, which carries it."""
        with self._mutex:
            self._busy = bool(self._queue)
            if self._queue:
                batch = _Batch(take(self._queue))
                for turn in batch.turns:
                    turn.batch = batch
                batch.turns[0].lock.release()


_carriages: weakref.WeakSet[_Carriage] = weakref.WeakSet()


def _after_fork() -> None:
    global _pool  # noqa: PLW0603 - its threads are the parent's
    _pool = None
    for carriage in _carriages:
        carriage.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def run(
    operation: Callable[Concatenate[Any, P], Op[T]],
) -> Callable[Concatenate[BloomFilter, P], T]:
    """Return the method that executes an operation at once."""

    def method(self: BloomFilter, /, *args: P.args, **kwargs: P.kwargs) -> T:
        call: Op[T] = getattr(self._operations, operation.__name__)(*args, **kwargs)
        return drive(self._client, call)

    presented_as(operation, method)
    return method


class Claim(ClaimView):
    __doc__ = ClaimView.__doc__

    def __init__(self, client: SyncClient, operations: FilterOperations, held: Held) -> None:
        super().__init__(held)
        self._client = client
        self._operations = operations

    @documented_by(FilterOperations.commit)
    def commit(self) -> None:
        drive(self._client, self._operations.commit(self._held))

    @documented_by(FilterOperations.release)
    def release(self) -> None:
        drive(self._client, self._operations.release(self._held))

    @documented_by(FilterOperations.extend)
    def extend(self, lease: float | timedelta) -> None:
        drive(self._client, self._operations.extend(self._held, lease))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if kind is None and self:
            self.commit()
        elif self:
            try:
                self.release()
            except Exception as failure:
                self._not_released(failure)


class BloomFilter(Bound[SyncClient, FilterOperations]):
    __doc__ = FilterOperations.__doc__

    _operations_class: ClassVar[type[FilterOperations]] = FilterOperations
    _is_asyncio = False

    @built_by(FilterOperations, operations)
    def __init__(self, client: SyncClient, operations: FilterOperations) -> None:
        Bound.__init__(self, client, operations)

    def _bind(self) -> None:
        operations = self._operations
        self._coalesce = operations.coalesce is True
        self._adds = _Carriage(self._client, operations, lambda items: operations.add_encoded(items, items))
        self._tests = _Carriage(self._client, operations, operations.contains_encoded)

    @classmethod
    def open(cls, client: SyncClient, name: str) -> Self:
        """Return a filter whose parameters are read from the server.

        :raises FilterNotFoundError: there is none.
        """
        opened = cls.__new__(cls)
        Bound.__init__(opened, client, cls._operations_class.unopened(name))
        opened.reserve()
        return opened

    @documented_by(FilterOperations.add)
    def add(self, item: Item, *, token: str | None = None) -> bool:
        operations = self._operations
        if token is None and operations.known(item):
            return False
        if token is not None or not self._coalesce:
            return drive(self._client, operations.add(item, token=token))
        added: bool = self._adds.carry((operations.hashable(item),), None, operations.add, item)
        return added

    @documented_by(FilterOperations.contains)
    def contains(self, item: Item) -> bool:
        operations = self._operations
        if operations.known(item):
            return True
        if not self._coalesce:
            return drive(self._client, operations.contains(item))
        there: bool = self._tests.carry((operations.hashable(item),), None, operations.contains, item)
        return there

    def __contains__(self, item: Item) -> bool:
        return self.contains(item)

    @documented_by(FilterOperations.add_many)
    def add_many(self, items: Iterable[Item]) -> list[bool]:
        operations, batch = self._operations, listed(items)
        if not self._coalesce or not 0 < len(batch) < MOST_ITEMS:
            return drive(self._client, operations.add_many(batch))
        encoded = [operations.hashable(item) for item in batch]
        added: list[bool] = self._adds.carry(encoded, batch, operations.add_many, batch)
        return added

    @documented_by(FilterOperations.contains_many)
    def contains_many(self, items: Iterable[Item]) -> list[bool]:
        operations, batch = self._operations, listed(items)
        if not self._coalesce or not 0 < len(batch) < MOST_ITEMS:
            return drive(self._client, operations.contains_many(batch))
        encoded = [operations.hashable(item) for item in batch]
        there: list[bool] = self._tests.carry(encoded, batch, operations.contains_many, batch)
        return there

    def dedupe(self, items: Iterable[I]) -> Iterator[I]:
        """Yield those of the items that were new, in order, as they are read.

        The items are sent in batches of up to 1,000, so that many are added before the first of them
        is yielded.  Where a batch is interrupted, its items that are known to be new are yielded
        before the error is raised; `error.rest` has those without an answer.
        """
        for batch in batches(items, DEDUPE_ITEMS):
            try:
                answers = self.add_many(batch)
            except BatchInterruptedError as error:
                yield from compress(batch, error.results)
                raise
            yield from compress(batch, answers)

    @documented_by(FilterOperations.load)
    def load(self, items: Iterable[Item], progress: Callable[[int], object] | None = None) -> int:
        operations = self._operations
        load = operations.loading(drive(self._client, operations.opened()))
        done = 0
        for batch in chain(batches(items, LOAD_ITEMS), [None]):
            if batch:
                load.take(batch)
            if load.items and (load.is_full or not batch):
                done += load.items
                opened = drive(self._client, operations.load(load))
                drive(self._client, operations.tally(opened, load.finish()))
                if progress is not None:
                    progress(done)
        return done

    @documented_by(FilterOperations.claim)
    def claim(self, item: Item, lease: float | timedelta = 30.0) -> Claim:
        return drive(self._client, self._operations.claim(item, lease, self._claim))

    @documented_by(FilterOperations.claim_many)
    def claim_many(self, items: Iterable[Item], lease: float | timedelta = 30.0) -> list[Claim]:
        return drive(self._client, self._operations.claim_many(items, lease, self._claim))

    def _claim(self, held: Held) -> Claim:
        return Claim(self._client, self._operations, held)

    def queue_add(self, pipe: AnyPipeline, item: Item) -> None:
        """Queue an add on a pipeline of the caller's; that place in `pipe.execute()` holds 1 or 0.

        In a MULTI it takes part in the transaction.  The filter is opened first if it is not yet, with
        its own client.
        """
        opened = drive(self._client, self._operations.opened(item))
        self._operations.queue_add(opened, pipe, item)

    def queue_contains(self, pipe: AnyPipeline, item: Item) -> None:
        """Queue a test on a pipeline of the caller's; that place in `pipe.execute()` holds 1 or 0."""
        opened = drive(self._client, self._operations.opened(item))
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
    def __init__(self, client: SyncClient, operations: ScalingOperations) -> None:
        Bound.__init__(self, client, operations)


class RotatingBloomFilter(BloomFilter):
    __doc__ = RotatingOperations.__doc__
    _operations_class = RotatingOperations

    @built_by(RotatingOperations)
    def __init__(self, client: SyncClient, operations: RotatingOperations) -> None:
        Bound.__init__(self, client, operations)


class ShardedBloomFilter(BloomFilter):
    __doc__ = ShardedOperations.__doc__
    _operations_class = ShardedOperations

    @built_by(ShardedOperations)
    def __init__(self, client: SyncClient | Sequence[SyncClient], operations: ShardedOperations) -> None:
        operations.over(len(client) if isinstance(client, list | tuple) else 1)
        Bound.__init__(self, cast("SyncClient", client), operations)

    @classmethod
    def open(cls, client: SyncClient | Sequence[SyncClient], name: str) -> Self:
        """Return a filter whose parameters are read from the server.

        :raises FilterNotFoundError: there is none.
        :raises FilterLostError: the root is there and a shard is not; a filter that is made with the
            constructor goes on without it after `reserve()`.
        """
        opened = cls(client, name)
        opened.reserve()
        return opened


class CountingBloomFilter(BloomFilter):
    __doc__ = CountingOperations.__doc__
    _operations_class = CountingOperations

    @built_by(CountingOperations)
    def __init__(self, client: SyncClient, operations: FilterOperations) -> None:
        Bound.__init__(self, client, operations)

    remove = run(CountingOperations.remove)
