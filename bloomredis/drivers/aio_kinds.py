"""The public classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from bloomredis.drivers.aio_filters import Filter
from bloomredis.drivers.aio_lifecycle import Adopting, Expiring
from bloomredis.drivers.aio_queueing import Queueing
from bloomredis.drivers.binding import constructor
from bloomredis.drivers.connections.clients import AsyncClient
from bloomredis.drivers.connections.urls import address
from bloomredis.drivers.observing import observed
from bloomredis.errors import FilterMismatchError
from bloomredis.later import later
from bloomredis.operations.kinds.plain import PlainOperations
from bloomredis.operations.options import (
    CountingParameters,
    I,
    PlainOptions,
    PlainParameters,
    RotatingParameters,
    ScalingParameters,
    ShardedParameters,
)
from bloomredis.stored.module.filter import other_layout

if TYPE_CHECKING:
    from bloomredis.operations.kinds import counting, rotating, scaling, sharded
    from bloomredis.operations.whole import snapshot as snapshots
else:
    counting, rotating, scaling, sharded = later(
        "bloomredis.operations.kinds", "counting", "rotating", "scaling", "sharded"
    )
    snapshots = later("bloomredis.operations.whole", "snapshot")


class BloomFilter(Filter[I], Queueing[I], Expiring):
    """A Bloom filter in one key of a Redis or Valkey server.

    Of any number of concurrent `add(x)`, in any number of threads, processes and machines, exactly one gets
    True.  An item that was added is always found.  An item that was not added is mistaken for a known one
    with a probability of about `error_rate` once the filter holds `capacity` items.

    :param client: a client of redis-py or valkey-py; nothing is sent before the first call.
    :param name: the key.
    :param capacity: number of items that the filter is sized for.  With `capacity` and `error_rate`, the
        first call checks a stored filter, and the first add or claim creates a missing one; without them the
        filter must exist.
    :param error_rate: the false-positive rate at `capacity`, strictly between 0 and 1.
    :param layout: `"blocked"` (faster calls), `"classic"` (up to 14% less memory) or `"module"` (a key of the
        server's own Bloom filter module, which grows by itself).  None takes the stored layout; a new filter
        is then blocked.  Or a layout from `bloomredis.compat`, for a bitmap that another system writes too:
        such a bitmap has no header, so the layout states its size, and its loss cannot be detected.
    :param ttl: seconds (or a timedelta) from creation until the whole filter expires; None for never.  An
        object that lives longer raises `FilterLostError` then: for items that are to be forgotten one by one,
        use a `RotatingBloomFilter`.
    :param on_full: the reaction to a new item in a filter that has `capacity` items, whoever added them.
        `"warn"` (the default) adds the item; each process logs a warning, and again at each doubling of the
        error rate, as an error from ten times `error_rate` on.  `"raise"` raises `FilterFullError`; a batch
        stops there, with `BatchInterruptedError`, and so does a claim, but never a commit.
    :param local_cache: keep a copy of the filter in this process (as large as the filter), and trust it for
        that many seconds (or a timedelta) after a call to the server; True means 1, False (the default) no
        copy.  The copy answers for an item whose bits it has; the server answers for any other item.  While
        the copy is trusted, `add` may answer "already there" although the filter was cleared, evicted or
        lost.  If the server comes back with an older state of the filter, the copy still has the items that
        the server has lost.
    :param on_lost: the reaction to the loss or replacement of the filter that this object has used.
        `"raise"` (the default) raises `FilterLostError`.  `"recreate"` logs a warning and goes on with the
        filter stored now, or with a new one, which is empty even if only a layer was lost.
    :param retry_safe: let a retry return the answer of the first execution, so that a lost reply never turns
        into "already there".  The default is True.
    :param encode: turns an item into bytes, for items that are not str, bytes or int.
    :param min_replicas: number of replicas that must have a write before the call returns, by default 0; with
        fewer it raises `OutcomeUnknownError`.  On a cluster these are replicas of the node that has the key.
    :param replica_timeout: seconds (or a timedelta) to wait for the replicas, by default 1.
    :raises ValueError, TypeError: for bad arguments, before any I/O.
    """

    _operations: PlainOperations
    _OPTIONS = frozenset(PlainOptions.__annotations__)

    @constructor(PlainParameters)
    def __init__(self, client: AsyncClient, name: str, **parameters: Unpack[PlainParameters[I]]) -> None:
        super().__init__(client, PlainOperations(name, **parameters))

    @classmethod
    def from_url(cls, url: str, name: str, **parameters: Unpack[PlainParameters[I]]) -> Self:
        """Return a filter with its own client for the server at `url`; its first call connects.

        A pickle of the filter contains its URL, with user name and password; the filter made from it connects
        at its own first call.

        :param url: `redis://`, `rediss://`, `unix://` or `valkey://`; `redis+cluster://` with any node of a
            cluster; `sentinel://host:26379/NAME` for the primary that a Sentinel names; `memory://`,
            `embedded://` and `embedded:///some/directory`: see `bloomredis.connect`.
        :param name: the key; the other parameters are those of the class.
        :raises ValueError, TypeError: for a bad URL or bad arguments, before any I/O.
        """
        return cls(address(url), name, **parameters)

    @classmethod
    async def open(cls, client: AsyncClient, name: str, **options: Unpack[PlainOptions[I]]) -> Self:
        """Open a stored filter; its parameters are read from the server.

        If another program created the filter with the server's module, this call adds marker items (40 at
        1%), by which the library recognises the filter.  Both programs may go on using it.

        :param options: the options of the class that are not stored, such as `on_lost` and `local_cache`; and
            the `encode` that the filter was created with.
        :raises FilterNotFoundError: no filter has this name.
        :raises FilterMismatchError: the filter is of another class, or was created with another `encode`.
        """
        try:
            return await super().open(client, name, **cast("Any", options))
        except FilterMismatchError as error:
            with other_layout(error) as layout:
                found = cls(client, name, layout=layout, **options)
                await found.create()
                return found

    @observed
    async def snapshot(self) -> snapshots.LocalFilter[I]:
        """Return a copy of the filter in this process, which answers without the server.

        The copy takes as much memory as the filter.  Reading it costs the server about 1 ms a megabyte, in
        pieces of 0.1 ms.
        """
        return await self._run(self._operations.snapshot())


class ScalingBloomFilter(Filter[I], Expiring, Adopting[I]):
    """A Bloom filter that grows by itself, so that the number of items need not be known.

    The first layer has room for `capacity` items.  When a layer is full, the filter adds another one with
    `expansion` times its room.  An item is in the filter if it is in any layer; items are added to the newest
    layer only.  The error rate of each layer is `tightening_ratio` times that of the layer before, so the
    error rate of all layers together stays below `error_rate`, however many there are.  If many writers fill
    a layer at once, exactly one new layer is created, and all of them use it within the same call.

    A call costs the server a little more for each layer.  A client needs one more round trip for each new
    layer.  One script creates a layer; it blocks the server for 0.25 to 0.5 ms a megabyte.  With
    `tightening_ratio` r, j full layers use 1 - r^j of `error_rate`; later layers use the rest.  All keys lie
    in one hash slot.

    :param client: a client of redis-py or valkey-py; nothing is sent before the first call.
    :param name: the key of the record; layers are `{name}:layer:0`, ...
    :param capacity: number of items that the first layer is sized for.  With `capacity` and `error_rate`, the
        first call checks a stored filter, and the first add or claim creates a missing one; without them the
        filter must exist, and all parameters are read from the server.
    :param error_rate: the false-positive rate of all layers together, strictly between 0 and 1.
    :param expansion: room of a layer divided by that of the layer before, at least 1, by default 2.  No layer
        is larger than a key can be (512 MB).
    :param tightening_ratio: error rate of a layer divided by that of the layer before, strictly between 0 and
        1, by default 0.5.  A larger ratio saves memory if there are many layers.
    :param layout: `"blocked"` (faster calls) or `"classic"` (less memory).  None means blocked.
    :param ttl: seconds (or a timedelta) from creation until the whole filter expires; None for never.  An
        object that lives longer raises `FilterLostError` then: for items that are to be forgotten one by one,
        use a `RotatingBloomFilter`.
    :param on_lost: the reaction to the loss or replacement of the filter that this object has used.
        `"raise"` (the default) raises `FilterLostError`.  `"recreate"` logs a warning and goes on with the
        filter stored now, or with a new one, which is empty even if only a layer was lost.
    :param retry_safe: let a retry return the answer of the first execution, so that a lost reply never turns
        into "already there".  The default is True.
    :param encode: turns an item into bytes, for items that are not str, bytes or int.
    :param min_replicas: number of replicas that must have a write before the call returns, by default 0; with
        fewer it raises `OutcomeUnknownError`.  On a cluster these are replicas of the node that has the key.
    :param replica_timeout: seconds (or a timedelta) to wait for the replicas, by default 1.
    :raises ValueError, TypeError: for bad arguments, before any I/O.
    """

    @constructor(ScalingParameters)
    def __init__(self, client: AsyncClient, name: str, **parameters: Unpack[ScalingParameters[I]]) -> None:
        super().__init__(client, scaling.ScalingOperations(name, **parameters))

    @classmethod
    def from_url(cls, url: str, name: str, **parameters: Unpack[ScalingParameters[I]]) -> Self:
        """Return a filter with its own client for the server at `url`: see `BloomFilter.from_url`."""
        return cls(address(url), name, **parameters)


class RotatingBloomFilter(Filter[I]):
    """A Bloom filter that forgets: an item is in it if it was seen within the last `window`.

    An item that was added is found for at least `window`, and for at most `window` plus one slice
    (`window / slices`), whatever the traffic.  Adding the item again meanwhile does not prolong that.  Times
    are those of the server's clock.  Old layers expire by themselves, even without any call.

    Each slice in which something is added has its own layer, sized for `capacity / slices` items.  If more
    items come in a slice, it gets another layer.  All keys lie in one hash slot.

    :param client: a client of redis-py or valkey-py; nothing is sent before the first call.
    :param name: the key of the record; layers are `{name}:layer:0`, ...
    :param capacity: number of items added within any window.  With more items the error rate grows in
        proportion.  With 255 layers, an add that needs another one raises `FilterFullError`, until some
        expire.  With `capacity`, `error_rate` and `window`, the first call checks a stored filter, and the
        first add or claim creates a missing one; without them the filter must exist, and all parameters are
        read from the server.
    :param error_rate: the false-positive rate with `capacity` items in a window, however unevenly they come.
    :param window: seconds (or a timedelta) for which an item is found at least.
    :param slices: number of slices of the window, 1 to 64, by default 4.  More slices forget more exactly,
        and cost more.  A slice must be 100 ms or longer.
    :param layout: `"blocked"` (faster calls) or `"classic"` (less memory).  None means blocked.
    :param on_lost: the reaction to the loss or replacement of the filter that this object has used.
        `"raise"` (the default) raises `FilterLostError`.  `"recreate"` logs a warning and goes on with the
        filter stored now, or with a new one, which is empty even if only a layer was lost.
    :param retry_safe: let a retry return the answer of the first execution, so that a lost reply never turns
        into "already there".  The default is True.
    :param encode: turns an item into bytes, for items that are not str, bytes or int.
    :param min_replicas: number of replicas that must have a write before the call returns, by default 0; with
        fewer it raises `OutcomeUnknownError`.  On a cluster these are replicas of the node that has the key.
    :param replica_timeout: seconds (or a timedelta) to wait for the replicas, by default 1.
    :raises ValueError, TypeError: for bad arguments, before any I/O.
    """

    @constructor(RotatingParameters)
    def __init__(self, client: AsyncClient, name: str, **parameters: Unpack[RotatingParameters[I]]) -> None:
        super().__init__(client, rotating.RotatingOperations(name, **parameters))

    @classmethod
    def from_url(cls, url: str, name: str, **parameters: Unpack[RotatingParameters[I]]) -> Self:
        """Return a filter with its own client for the server at `url`: see `BloomFilter.from_url`."""
        return cls(address(url), name, **parameters)


class ShardedBloomFilter(Filter[I], Queueing[I], Expiring):
    """A Bloom filter of any capacity, in shards that a cluster spreads over its nodes.

    Each item belongs to one shard, so of any number of concurrent `add(x)` exactly one gets True, as with
    `BloomFilter`.  A batch goes to all shards at once.  A shard takes memory from its first item on.  If a
    shard is lost, calls raise `FilterLostError`, as after the loss of a whole filter.  Then call
    `acknowledge()` to go on without the items of that shard, or `clear()`.

    :param client: a client of redis-py or valkey-py: of a cluster, which spreads the shards over its nodes,
        or of one server.
    :param name: the key of the record, which has all parameters; shards are `{name:0:…}`, `{name:1:…}`, ...
        It must not contain `}`.
    :param capacity: number of items that the filter is sized for.  With `capacity` and `error_rate`, the
        first call checks a stored filter, and the first add or claim creates a missing one; without them the
        filter must exist.
    :param error_rate: the false-positive rate at `capacity`, strictly between 0 and 1.
    :param shards: number of shards, 1 to 4,096.  None takes the stored number; a new filter then gets 16, or
        more if a shard would be larger than 128 MB.  One script creates a shard and blocks its server for
        0.25 to 0.5 ms a megabyte: more shards block it for less time, and make batches slower.
    :param layout: `"blocked"` (faster calls) or `"classic"` (up to 14% less memory).  None takes the stored
        layout; a new filter is then blocked.
    :param seed: seed of the hash that picks the shard.  None takes the stored seed; a new filter then has the
        default.
    :param ttl: seconds (or a timedelta) from creation until the whole filter expires; None for never.  An
        object that lives longer raises `FilterLostError` then: for items that are to be forgotten one by one,
        use a `RotatingBloomFilter`.
    :param on_lost: the reaction to the loss or replacement of the filter that this object has used.
        `"raise"` (the default) raises `FilterLostError`.  `"recreate"` logs a warning and goes on with the
        filter stored now, or with a new one, which is empty even if only a layer was lost.
    :param retry_safe: let a retry return the answer of the first execution, so that a lost reply never turns
        into "already there".  The default is True.
    :param encode: turns an item into bytes, for items that are not str, bytes or int.
    :param min_replicas: number of replicas that must have a write before the call returns, by default 0; with
        fewer it raises `OutcomeUnknownError`.  On a cluster these are replicas of the node that has the key.
    :param replica_timeout: seconds (or a timedelta) to wait for the replicas, by default 1.
    :raises ValueError, TypeError: for bad arguments, before any I/O.
    """

    @constructor(ShardedParameters)
    def __init__(self, client: AsyncClient, name: str, **parameters: Unpack[ShardedParameters[I]]) -> None:
        super().__init__(client, sharded.ShardedOperations(name, **parameters))

    @classmethod
    def from_url(cls, url: str, name: str, **parameters: Unpack[ShardedParameters[I]]) -> Self:
        """Return a filter with its own client for the server at `url`: see `BloomFilter.from_url`."""
        return cls(address(url), name, **parameters)


class CountingBloomFilter(Filter[I], Queueing[I], Expiring):
    """A Bloom filter that items can be removed from: it counts how often each was added.

    Every `add(x)` counts, even if the item is in the filter already: an item that was added twice stays until
    it has been removed twice.  Of concurrent `add(x)` of an item that is not in the filter, exactly one gets
    True.  An item that was added more often than it was removed is always found.

    Remove only items that were added.  An item that was not added may be mistaken for a known one, with a
    probability of about `error_rate` once the filter holds `capacity` items.  Removing it then lowers the
    counters of other items, which may not be found any more.  The removal of an item that is not found is
    refused, and changes nothing.

    A counter that has reached 15 stays at 15, so that it never causes an item to be missed.  Items that were
    added that often are found even after they were removed.

    The filter takes four times the memory of a filter in the classic layout.  `update` works like `add_many`;
    after an error, do not give it items again that were already counted.

    :param client: a client of redis-py or valkey-py; nothing is sent before the first call.
    :param name: the key.
    :param capacity: number of different items that the filter is sized for.  With `capacity` and
        `error_rate`, the first call checks a stored filter, and the first add or claim creates a missing one;
        without them the filter must exist.
    :param error_rate: the false-positive rate at `capacity`, strictly between 0 and 1.
    :param ttl: seconds (or a timedelta) from creation until the whole filter expires; None for never.  An
        object that lives longer raises `FilterLostError` then: for items that are to be forgotten one by one,
        use a `RotatingBloomFilter`.
    :param on_lost: the reaction to the loss or replacement of the filter that this object has used.
        `"raise"` (the default) raises `FilterLostError`.  `"recreate"` logs a warning and goes on with the
        filter stored now, or with a new one, which is empty even if only a layer was lost.
    :param retry_safe: let a retry return the answer of the first execution, so that a lost reply never turns
        into "already there".  The default is True.
    :param encode: turns an item into bytes, for items that are not str, bytes or int.
    :param min_replicas: number of replicas that must have a write before the call returns, by default 0; with
        fewer it raises `OutcomeUnknownError`.  On a cluster these are replicas of the node that has the key.
    :param replica_timeout: seconds (or a timedelta) to wait for the replicas, by default 1.
    :raises ValueError, TypeError: for bad arguments, before any I/O.
    """

    _operations: counting.CountingOperations

    @constructor(CountingParameters)
    def __init__(self, client: AsyncClient, name: str, **parameters: Unpack[CountingParameters[I]]) -> None:
        super().__init__(client, counting.CountingOperations(name, **parameters))

    @classmethod
    def from_url(cls, url: str, name: str, **parameters: Unpack[CountingParameters[I]]) -> Self:
        """Return a filter with its own client for the server at `url`: see `BloomFilter.from_url`."""
        return cls(address(url), name, **parameters)

    @observed
    async def remove(self, item: I, *, token: str | None = None) -> bool:
        """Remove an item once; True if it was in the filter, False (and nothing is changed) if it was not.

        The item is gone when it has been removed as often as it was added.  Costs one round trip.

        If an `add` of the item by this object is pending (`OutcomeUnknownError`), the removal first makes
        sure that it has counted once.  Another `add` then counts again.

        :param token: the `token` of an `OutcomeUnknownError`, to get the answer of the call that raised it.
        :raises OutcomeUnknownError: no answer came.  Within a minute, a retry on the same object, or from
            anywhere with the error's `token`, returns the answer of this call.  Make only one of the two.
        """
        return await self._run(self._operations.remove(item, token=token))
