"""The public classes over synchronous clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import chain, compress
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar, cast

from bloomredis.arguments import listed
from bloomredis.bits.encoding import Item
from bloomredis.drivers.batches import batches
from bloomredis.drivers.binding import Bound, built_by, documented_by, presented_as
from bloomredis.drivers.coalescing import MOST_ITEMS
from bloomredis.drivers.sync import SyncClient, T, drive
from bloomredis.drivers.threads import Coalescer
from bloomredis.errors import BatchInterruptedError
from bloomredis.operations.claims import ClaimView, Held
from bloomredis.operations.counting import CountingOperations
from bloomredis.operations.filter import DEDUPE_ITEMS, LOAD_ITEMS, FilterOperations
from bloomredis.operations.partitioned import operations
from bloomredis.operations.pipelines import AnyPipeline
from bloomredis.operations.rotating import RotatingOperations
from bloomredis.operations.scaling import ScalingOperations
from bloomredis.operations.sharded import ShardedOperations
from bloomredis.protocol.steps import Op

P = ParamSpec("P")
I = TypeVar("I", bound=Item)  # noqa: E741 - the items


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
        self._adds = Coalescer(self._client, operations, lambda items: operations.add_encoded(items, items))
        self._tests = Coalescer(self._client, operations, operations.contains_encoded)

    @classmethod
    def open(cls, client: SyncClient, name: str) -> Self:
        """Return a filter whose parameters are read from the server.

        :raises FilterNotFoundError: there is none.
        """
        handle = cls.__new__(cls)
        Bound.__init__(handle, client, cls._operations_class.from_server(name))
        handle.reserve()
        return handle

    @documented_by(FilterOperations.add)
    def add(self, item: Item, *, token: str | None = None) -> bool:
        operations = self._operations
        if token is None and operations.known(item):
            return False
        if token is not None or not self._coalesce:
            return drive(self._client, operations.add(item, token=token))
        added: bool = self._adds.submit((operations.encode_for_batch(item),), None, operations.add, item)
        return added

    @documented_by(FilterOperations.contains)
    def contains(self, item: Item) -> bool:
        operations = self._operations
        if operations.known(item):
            return True
        if not self._coalesce:
            return drive(self._client, operations.contains(item))
        there: bool = self._tests.submit(
            (operations.encode_for_batch(item),), None, operations.contains, item
        )
        return there

    def __contains__(self, item: Item) -> bool:
        return self.contains(item)

    @documented_by(FilterOperations.add_many)
    def add_many(self, items: Iterable[Item]) -> list[bool]:
        operations, batch = self._operations, listed(items)
        if not self._coalesce or not 0 < len(batch) < MOST_ITEMS:
            return drive(self._client, operations.add_many(batch))
        encoded = [operations.encode_for_batch(item) for item in batch]
        added: list[bool] = self._adds.submit(encoded, batch, operations.add_many, batch)
        return added

    @documented_by(FilterOperations.contains_many)
    def contains_many(self, items: Iterable[Item]) -> list[bool]:
        operations, batch = self._operations, listed(items)
        if not self._coalesce or not 0 < len(batch) < MOST_ITEMS:
            return drive(self._client, operations.contains_many(batch))
        encoded = [operations.encode_for_batch(item) for item in batch]
        there: list[bool] = self._tests.submit(encoded, batch, operations.contains_many, batch)
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
        load = operations.loading(drive(self._client, operations.handle()))
        done = 0
        for batch in chain(batches(items, LOAD_ITEMS), [None]):
            if batch:
                load.take(batch)
            if load.items and (load.is_full or not batch):
                done += load.items
                handle = drive(self._client, operations.load(load))
                drive(self._client, operations.tally(handle, load.finish()))
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
        handle = drive(self._client, self._operations.handle(item))
        self._operations.queue_add(handle, pipe, item)

    def queue_contains(self, pipe: AnyPipeline, item: Item) -> None:
        """Queue a test on a pipeline of the caller's; that place in `pipe.execute()` holds 1 or 0."""
        handle = drive(self._client, self._operations.handle(item))
        self._operations.queue_contains(handle, pipe, item)

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
        handle = cls(client, name)
        handle.reserve()
        return handle


class CountingBloomFilter(BloomFilter):
    __doc__ = CountingOperations.__doc__
    _operations_class = CountingOperations

    @built_by(CountingOperations)
    def __init__(self, client: SyncClient, operations: FilterOperations) -> None:
        Bound.__init__(self, client, operations)

    remove = run(CountingOperations.remove)
