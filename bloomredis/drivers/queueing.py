# Made from aio_queueing.py by `make generate`: change that file instead.
"""Calls queued on a caller's pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from bloomredis.drivers.driven import Driven
from bloomredis.drivers.observing import observed
from bloomredis.operations.kinds import pipelines
from bloomredis.operations.kinds.pipelines import AnyPipeline
from bloomredis.operations.options import I

if TYPE_CHECKING:
    from bloomredis.operations.kinds.sharded import ShardedOperations


class Queueing(Driven, Generic[I]):
    """Filters whose calls can be queued on a caller's pipeline."""

    _operations: pipelines.Queueing | ShardedOperations

    @observed
    def queue_add(self, pipe: AnyPipeline, item: I) -> None:
        """Queue an add on the caller's pipeline; its result in `pipe.execute()` is 1 (new) or 0.

        In a MULTI the add takes part in the transaction.  A filter that is not open yet is opened first, over
        its own client.  If the filter was lost since, `pipe.execute()` fails with BLOOMMISSING or
        BLOOMCHANGED; after `acknowledge()` this object goes on with the filter stored then.

        :raises ConnectionFailedError: the filter had to be opened, and no reply came.
        """
        self._run(self._operations.queue(pipe, item, adds=True))

    @observed
    def queue_contains(self, pipe: AnyPipeline, item: I) -> None:
        """Queue a test on the caller's pipeline; its result in `pipe.execute()` is 1 (in the filter) or 0.

        :raises ConnectionFailedError: the filter had to be opened, and no reply came.
        :raises FilterNotFoundError: there is no filter.
        """
        self._run(self._operations.queue(pipe, item, adds=False))
