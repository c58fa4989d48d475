"""The filters over synchronous clients: `redis.Redis`, `redis.RedisCluster` and valkey's twins."""

from __future__ import annotations

import inspect
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import compress, islice
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from bloomredis.binding import Bound, built_by, documented_by, presented_as
from bloomredis.coalesce import MOST_ITEMS, Gate, Waiting, outcomes
from bloomredis.errors import BatchInterruptedError, OutcomeUnknownError
from bloomredis.filter import DEDUPE_ITEMS, FilterOperations, listed
from bloomredis.hashing import Item
from bloomredis.pipelines import AnyPipeline
from bloomredis.protocol import Op, Step

P = ParamSpec("P")
T = TypeVar("T")
I = TypeVar("I", bound=Item)  # noqa: E741 - the items


class SyncClient(Protocol):
    """What is needed of a client."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command and return its reply."""

    def pipeline(self, *, transaction: bool) -> Any:
        """Return a pipeline, which sends several commands over one connection."""


def drive(client: SyncClient, operation: Op[T]) -> T:
    """Execute an operation's commands until it has its answer."""
    try:
        step = next(operation)
        while True:
            try:
                reply = _execute(client, step)
            except Exception as error:
                step = operation.throw(error)
            else:
                step = operation.send(reply)
    except StopIteration as end:
        answer: T = end.value
        return answer


def _execute(client: SyncClient, step: Step) -> Any:
    if isinstance(step, tuple):
        return client.execute_command(*step)
    pipe = client.pipeline(transaction=False)
    for command in step:
        pipe.execute_command(*command)
    return pipe.execute(raise_on_error=False)


class _Turn:
    """How a thread waits: for the outcome of its call, or for its turn to carry what waits."""

    __slots__ = ("carries", "given_up", "lock", "outcome")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.outcome: Any = None
        self.carries = False
        self.given_up = False


class _Carriage:
    """Carries the calls of one verb; one thread carries what the others have waiting."""

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
        self._gate: Gate[_Turn] = Gate()
        self._under_way = False

    def carry(self, items: list[str | bytes], source: list[Any] | None, alone: Callable[[], Op[Any]]) -> Any:
        """Send a call at once if nobody is under way, else let it wait for the next departure."""
        with self._mutex:
            turn = _Turn() if self._under_way else None
            self._under_way = True
            if turn is not None:
                self._gate.queue.append(Waiting(items, source, turn))
        if turn is None:
            try:
                return drive(self._client, alone())
            finally:
                self._hand_over()
        self._await(turn)
        if turn.carries:
            self._carry_waiting()
        if isinstance(turn.outcome, Exception):
            raise turn.outcome
        return turn.outcome

    def _await(self, turn: _Turn) -> None:
        try:
            turn.lock.acquire()
        except BaseException:  # Ctrl-C
            with self._mutex:
                turn.given_up = True
            if turn.carries:
                self._hand_over()
            raise

    def _carry_waiting(self) -> None:
        with self._mutex:
            batch = self._gate.depart(MOST_ITEMS, lambda turn: turn.given_up)
        items = [item for call in batch for item in call.items]
        answers: list[bool] | Exception = OutcomeUnknownError(
            "the thread that carried this call was interrupted"
        )
        try:
            answers = drive(self._client, self._verb(items))
        except Exception as error:
            answers = error
        finally:
            for call, outcome in outcomes(self._operations, batch, answers):
                call.driver.outcome = outcome
                call.driver.lock.release()
            with self._mutex:
                self._gate.leave(items)
            self._hand_over()

    def _hand_over(self) -> None:
        with self._mutex:
            queue = self._gate.queue
            while queue and queue[0].driver.given_up:
                queue.popleft()
            if queue:
                queue[0].driver.carries = True
                queue[0].driver.lock.release()
            else:
                self._under_way = False


_carriages: weakref.WeakSet[_Carriage] = weakref.WeakSet()


def _reset_carriages() -> None:
    for carriage in _carriages:
        carriage.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_carriages)


def run(
    operation: Callable[Concatenate[FilterOperations, P], Op[T]],
) -> Callable[Concatenate[BloomFilter, P], T]:
    """Return the method that executes an operation at once."""

    def method(self: BloomFilter, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return drive(self._client, operation(self._operations, *args, **kwargs))

    presented_as(operation, method)
    return method


class BloomFilter(Bound[SyncClient, FilterOperations]):
    __doc__ = FilterOperations.__doc__

    @built_by(FilterOperations)
    def __init__(self, client: SyncClient, operations: FilterOperations) -> None:
        if inspect.iscoroutinefunction(getattr(client, "execute_command", None)):
            raise TypeError(
                f"{type(client).__name__} is an asyncio client; use bloomredis.asyncio.BloomFilter"
            )
        super().__init__(client, operations)

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
        opened = cls(client, name)
        opened.reserve()
        return opened

    @documented_by(FilterOperations.add)
    def add(self, item: Item, *, token: str | None = None) -> bool:
        operations = self._operations
        if token is not None or not self._coalesce:
            return drive(self._client, operations.add(item, token=token))
        added: bool = self._adds.carry([operations.hashable(item)], None, lambda: operations.add(item))
        return added

    @documented_by(FilterOperations.contains)
    def contains(self, item: Item) -> bool:
        operations = self._operations
        if not self._coalesce:
            return drive(self._client, operations.contains(item))
        there: bool = self._tests.carry([operations.hashable(item)], None, lambda: operations.contains(item))
        return there

    def __contains__(self, item: Item) -> bool:
        return self.contains(item)

    @documented_by(FilterOperations.add_many)
    def add_many(self, items: Iterable[Item]) -> list[bool]:
        operations, batch = self._operations, listed(items)
        if not self._coalesce or not 0 < len(batch) < MOST_ITEMS:
            return drive(self._client, operations.add_many(batch))
        encoded = [operations.hashable(item) for item in batch]
        added: list[bool] = self._adds.carry(encoded, batch, lambda: operations.add_many(batch))
        return added

    @documented_by(FilterOperations.contains_many)
    def contains_many(self, items: Iterable[Item]) -> list[bool]:
        operations, batch = self._operations, listed(items)
        if not self._coalesce or not 0 < len(batch) < MOST_ITEMS:
            return drive(self._client, operations.contains_many(batch))
        encoded = [operations.hashable(item) for item in batch]
        there: list[bool] = self._tests.carry(encoded, batch, lambda: operations.contains_many(batch))
        return there

    def dedupe(self, items: Iterable[I]) -> Iterator[I]:
        """Yield those of the items that were new, in order, as they are read.

        The items are sent in batches of up to 1,000, so that many are added before the first of them
        is yielded.  Where a batch is interrupted, its items that are known to be new are yielded
        before the error is raised; `error.rest` has those without an answer.
        """
        source = iter(items)
        while batch := list(islice(source, DEDUPE_ITEMS)):
            try:
                answers = self.add_many(batch)
            except BatchInterruptedError as error:
                yield from compress(batch, error.results)
                raise
            yield from compress(batch, answers)

    def queue_add(self, pipe: AnyPipeline, item: Item) -> None:
        """Queue an add on a pipeline of the caller's; that place in `pipe.execute()` holds 1 or 0.

        In a MULTI it takes part in the transaction.  The filter is opened first if it is not yet, with
        its own client.
        """
        opened = drive(self._client, self._operations.opened())
        self._operations.queue_add(opened, pipe, item)

    def queue_contains(self, pipe: AnyPipeline, item: Item) -> None:
        """Queue a test on a pipeline of the caller's; that place in `pipe.execute()` holds 1 or 0."""
        opened = drive(self._client, self._operations.opened())
        self._operations.queue_contains(opened, pipe, item)

    reserve = run(FilterOperations.reserve)
    info = run(FilterOperations.info)
    approximate_count = run(FilterOperations.approximate_count)
    clear = run(FilterOperations.clear)
    delete = run(FilterOperations.delete)
    expire = run(FilterOperations.expire)
