"""The filters over synchronous clients: `redis.Redis`, `redis.RedisCluster` and valkey's twins."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from itertools import compress, islice
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from bloomredis.binding import built_by, presented_as
from bloomredis.errors import BatchInterruptedError
from bloomredis.filter import FilterOperations
from bloomredis.hashing import Item
from bloomredis.protocol import Op, Step

P = ParamSpec("P")
T = TypeVar("T")
I = TypeVar("I", bound=Item)  # noqa: E741 - the items
DEDUPE_ITEMS = 1000


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


def run(
    operation: Callable[Concatenate[FilterOperations, P], Op[T]],
) -> Callable[Concatenate[BloomFilter, P], T]:
    """Return the method that executes an operation at once."""

    def method(self: BloomFilter, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return drive(self._client, operation(self._operations, *args, **kwargs))

    presented_as(operation, method)
    return method


class BloomFilter:
    __doc__ = FilterOperations.__doc__

    @built_by(FilterOperations)
    def __init__(self, client: SyncClient, operations: FilterOperations) -> None:
        if inspect.iscoroutinefunction(getattr(client, "execute_command", None)):
            raise TypeError(
                f"{type(client).__name__} is an asyncio client; use bloomredis.asyncio.BloomFilter"
            )
        self._client = client
        self._operations = operations

    @classmethod
    def open(cls, client: SyncClient, name: str) -> Self:
        """Return a filter whose parameters are read from the server.

        :raises FilterNotFoundError: there is none.
        """
        opened = cls(client, name)
        opened.reserve()
        return opened

    @property
    def name(self) -> str:
        """The filter's key."""
        return self._operations.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __contains__(self, item: Item) -> bool:
        return self.contains(item)

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

    add = run(FilterOperations.add)
    contains = run(FilterOperations.contains)
    add_many = run(FilterOperations.add_many)
    contains_many = run(FilterOperations.contains_many)
    reserve = run(FilterOperations.reserve)
    info = run(FilterOperations.info)
    approximate_count = run(FilterOperations.approximate_count)
    clear = run(FilterOperations.clear)
    delete = run(FilterOperations.delete)
    expire = run(FilterOperations.expire)
