"""The rebuild of a filter as a context manager, over synchronous and over asyncio clients."""

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

_LEFT: Final = "the rebuild of %r was not abandoned: its successor goes by itself (%s)"

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
        """Rebuild the filter beside itself: for another capacity, or to forget what was deleted elsewhere.

        ``with seen.rebuild(capacity=…) as new: new.load(source)`` makes an empty filter, the successor.
        From then on every client's new items go to both, and the filter answers as before.  At the end of
        the block the successor takes the filter's place in one step, and keeps its time to live.  Other
        clients follow within a call, without an error.  If the block raises, the filter stays as it was.

        Items that were added before are in the successor only if `source` has them.  An object with
        `local_cache` may for `local_cache_check` seconds not have noticed that the rebuild began: what it
        calls "already there" in that time counts as added before.  A `load` of another client that is under
        way raises `OutcomeUnknownError`, and is to be made again.

        It takes the memory of both filters meanwhile.  An add of one item costs the server some 25 us, an
        item of a batch three times what it does otherwise; each client looks again, in one or two round
        trips, at the beginning and at the end.

        :param capacity: items that the successor is made for; None for that of the filter.
        :param error_rate: its false-positive rate then; None for that of the filter.
        :param timeout: seconds (or a timedelta) in which the block has to end.  If its process dies, the
            filter goes on as it was from then on.
        :param take_over: take the place of a rebuild that is under way, as of a process that has died.
        :raises FilterMismatchError: it is being rebuilt already.
        :raises FilterLostError: the filter was cleared, deleted or lost meanwhile, or the successor was.
        :raises OutcomeUnknownError: no reply came; rebuild it again.
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
                    _log.warning(_LEFT, self.name, error)
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
        """Rebuild the filter beside itself."""
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
            except GeneratorExit:  # nothing can be waited for any more
                _log.warning(_LEFT, self.name, "its coroutine was closed")
                raise
            except BaseException:
                try:
                    await run(rebuild.abandon())
                except BloomError as error:
                    _log.warning(_LEFT, self.name, error)
                raise
            await run(rebuild.end())
