"""The filters over synchronous clients: `redis.Redis`, `redis.RedisCluster` and valkey's twins."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from bloomredis.binding import built_by, presented_as
from bloomredis.filter import FilterOperations
from bloomredis.hashing import Item
from bloomredis.protocol import Op

P = ParamSpec("P")
T = TypeVar("T")
I = TypeVar("I", bound=Item)  # noqa: E741 - the items
DEDUPE_ITEMS = 1000


class SyncClient(Protocol):
    """What is needed of a client."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command and return its reply."""


def drive(client: SyncClient, operation: Op[T]) -> T:
    """Execute an operation's commands until it has its answer."""
    execute = client.execute_command
    try:
        command = next(operation)
        while True:
            try:
                reply = execute(*command)
            except Exception as error:
                command = operation.throw(error)
            else:
                command = operation.send(reply)
    except StopIteration as end:
        answer: T = end.value
        return answer


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
        is yielded.
        """
        source = iter(items)
        while batch := list(islice(source, DEDUPE_ITEMS)):
            for item, new in zip(batch, self.add_many(batch), strict=True):
                if new:
                    yield item

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
