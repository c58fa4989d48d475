"""The rebuild of a filter as a context manager, over synchronous and asyncio clients."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Final, Self

from bloomredis.drivers.binding import documented_as
from bloomredis.drivers.driven import AsyncDriven, Driven
from bloomredis.drivers.observing import observed_block
from bloomredis.errors import BloomError
from bloomredis.operations.kinds.partitioned import PartitionedOperations
from bloomredis.operations.kinds.plain import PlainOperations
from bloomredis.operations.options import Seconds
from bloomredis.operations.whole.rebuilding import TIMEOUT, Rebuilding

_NOT_DELETED: Final = "the failed rebuild of %r could not be cleaned up (%s); its successor expires by itself"

_log = logging.getLogger("bloomredis")


class Rebuildable(Driven):
    """Filters that can be rebuilt with other parameters while they are in use."""

    _operations: PlainOperations | PartitionedOperations

    def rebuild(
        self,
        *,
        capacity: int | None = None,
        error_rate: float | None = None,
        timeout: Seconds = TIMEOUT,
        take_over: bool = False,
    ) -> AbstractContextManager[Self]:
        """Rebuild the filter while it is in use: for another capacity, or without items deleted elsewhere.

        ``with seen.rebuild(capacity=…) as new: new.load(source)`` creates an empty filter, the successor.
        From then on every client adds new items to both filters, and the filter answers as before.  At the
        end of the block the successor replaces the filter in one step; the time to live stays the same.
        Other clients follow within a call, without an error.  If the block raises, the filter stays as it
        was.

        Items added before the rebuild are in the successor only if `source` has them.  An object with
        `local_cache` may notice the rebuild up to `local_cache_check` seconds late: what it calls "already
        there" in that time counts as added before the rebuild.  If another client is in the middle of a
        `load`, that call raises `OutcomeUnknownError`; make it again.

        During a rebuild both filters take memory.  An add of one item costs the server about 25 us, and an
        item of a batch three times as much as otherwise.  At the beginning and at the end each client needs
        one or two more round trips.

        :param capacity: number of items that the successor is sized for; None takes that of the filter.
        :param error_rate: false-positive rate of the successor at its capacity; None takes that of the
            filter.
        :param timeout: seconds (or a timedelta) in which the block must end.  If its process dies, the
            rebuild ends after that time, and the filter goes on as it was.
        :param take_over: replace a rebuild in progress, for example that of a process that has died.
        :raises FilterMismatchError: another rebuild of the filter is in progress.
        :raises FilterLostError: the filter was cleared, deleted or lost meanwhile, or the successor was.
        :raises OutcomeUnknownError: no reply came; rebuild the filter again.
        :raises TypeError: the filter has no header: it has a layout from `bloomredis.compat`, or is a key of
            the server's module.
        """
        return self._rebuilding(
            self._operations.rebuild(
                capacity=capacity, error_rate=error_rate, timeout=timeout, take_over=take_over
            )
        )

    @contextmanager
    def _rebuilding(self, rebuild: Rebuilding[PlainOperations]) -> Iterator[Self]:
        with observed_block(self, "rebuild") as run:
            new = self._over_the_same(run(rebuild.begin()))
            try:
                yield new
            except BaseException:
                try:
                    run(rebuild.abandon())
                except BloomError as error:
                    _log.warning(_NOT_DELETED, self.name, error)
                raise
            run(rebuild.end())


@documented_as(Rebuildable)
class AsyncRebuildable(AsyncDriven):
    """Filters that can be rebuilt with other parameters while they are in use."""

    _operations: PlainOperations | PartitionedOperations

    def rebuild(
        self,
        *,
        capacity: int | None = None,
        error_rate: float | None = None,
        timeout: Seconds = TIMEOUT,
        take_over: bool = False,
    ) -> AbstractAsyncContextManager[Self]:
        """Rebuild the filter while it is in use."""
        return self._rebuilding(
            self._operations.rebuild(
                capacity=capacity, error_rate=error_rate, timeout=timeout, take_over=take_over
            )
        )

    @asynccontextmanager
    async def _rebuilding(self, rebuild: Rebuilding[PlainOperations]) -> AsyncIterator[Self]:
        with observed_block(self, "rebuild") as run:
            new = self._over_the_same(await run(rebuild.begin()))
            try:
                yield new
            except GeneratorExit:  # a coroutine that is closed cannot await
                _log.warning(_NOT_DELETED, self.name, "its coroutine was closed")
                raise
            except BaseException:
                try:
                    await run(rebuild.abandon())
                except BloomError as error:
                    _log.warning(_NOT_DELETED, self.name, error)
                raise
            await run(rebuild.end())
