"""The public classes over synchronous clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, Unpack, cast

from bloomredis.drivers.binding import documented
from bloomredis.drivers.connections.clients import SyncClient, SyncClients
from bloomredis.drivers.connections.urls import addresses
from bloomredis.drivers.constructors import (
    CountingConstructor,
    PlainConstructor,
    RotatingConstructor,
    ScalingConstructor,
    ShardedConstructor,
)
from bloomredis.drivers.filters import Filter
from bloomredis.drivers.lifecycle import Adopting, Expiring
from bloomredis.drivers.observing import observed
from bloomredis.drivers.queueing import Queueing
from bloomredis.drivers.rebuilding import Rebuildable
from bloomredis.errors import FilterMismatchError
from bloomredis.operations.kinds.counting import CountingOperations
from bloomredis.operations.kinds.partitioned import PartitionedOperations
from bloomredis.operations.kinds.plain import PlainOperations
from bloomredis.operations.kinds.rotating import RotatingOperations
from bloomredis.operations.kinds.scaling import ScalingOperations
from bloomredis.operations.options import (
    CountingParameters,
    I,
    Options,
    PlainOptions,
    PlainParameters,
    RotatingParameters,
    ScalingParameters,
    Seconds,
    ShardedParameters,
)
from bloomredis.operations.whole.snapshot import LocalFilter
from bloomredis.stored.module.filter import other_layout


@documented(Options)
class BloomFilter(PlainConstructor[SyncClient, I], Filter[I], Queueing[I], Rebuildable, Expiring):
    """A Bloom filter in one key of a Redis or Valkey server.

    Of any number of concurrent `add(x)`, in any number of threads, processes and machines, exactly one gets
    True.  An item that was added is always found; one that was not is taken for present with a probability of
    about `error_rate` once `capacity` items are in.

    :param client: a client of redis-py or valkey-py; nothing is sent before the first call.
    :param name: the key.
    :param capacity: items that the filter is made for.  With `capacity` and `error_rate` a missing
        filter is created at first use and a stored one is checked; without, it must exist.
    :param error_rate: the false-positive rate at `capacity`, strictly between 0 and 1.
    :param layout: `"blocked"`, whose calls are faster, `"classic"`, which takes up to 14% less memory, or
        `"module"`, a key of the server's own Bloom filter module, which grows by itself; None for the stored
        one, and blocked for a new one.  Or a layout from `bloomredis.compat`, for a bitmap that another
        system writes too: it has no header, so the layout has its size, and its loss cannot be noticed.
    :param ttl: seconds (or a timedelta) from creation until the filter expires; None for never.
    :param refresh_ttl: let each insert renew the `ttl`; only with a layout from `bloomredis.compat`.
    :param on_full: the reaction to more items than `capacity`, as far as this object knows: it counts its
        own, and those of others once a second.  `"warn"` logs one warning; `"raise"` raises
        `FilterFullError` from each call that would add, and adds nothing; a callable is given that error
        once, before a call that would add, and may raise it.
    :param local_cache: answer from a copy of the filter in this process (as large as the filter) if all
        bits of an item are set there, which is right while the generation stands; else ask the server.
    :param local_cache_check: seconds (or a timedelta) until the generation is checked again.  For that long
        `add` may call an item "already there" of a filter that was cleared, evicted or lost.  What was once
        in the filter stays in the copy where the server comes back with an older state of it.
    :raises ValueError, TypeError: for bad arguments, before any I/O.
    """

    _operations: PlainOperations | PartitionedOperations
    _stored_operations = PlainOperations
    _OPTIONS = frozenset(PlainOptions.__annotations__)

    def at(self, name: str, *, ttl: Seconds | None = None) -> Self:
        """Return the filter of another name in the same layout.

        For programs with a key for each call: nothing is sent.  Only with a layout from
        `bloomredis.compat`, and not for a chain of growing bitmaps.

        :param ttl: seconds (or a timedelta) until the key expires, renewed by each insert; None for what
            this filter has.
        """
        return self._at(name, ttl)

    @classmethod
    def from_url(cls, url: str | Sequence[str], name: str, **parameters: Unpack[PlainParameters[I]]) -> Self:
        """Return a filter with a client of its own for the server at `url`; it connects when it is used.

        It pickles with its URL, user name and password included, and connects where it is used.

        :param url: `redis://`, `rediss://`, `unix://` or `valkey://`; `redis+cluster://` for the cluster of a
            node; `memory://`, `embedded://` and `embedded:///some/directory` for `bloomredis.embedded`.
        :param name: the key; the other parameters are those of the class.
        :raises ValueError, TypeError: for a bad URL or bad arguments, before any I/O.
        """
        return cls(addresses(url), name, **parameters)

    @classmethod
    def open(cls, client: SyncClients, name: str, **options: Unpack[PlainOptions[I]]) -> Self:
        """Return a filter whose parameters are read from the server.

        One of the server's module that another program made gets markers, some 40 items of its own; both may
        use it then.

        :param options: those of the class that are no parameters of what is stored, as `on_lost` and
            `local_cache`, and the `encode` that the filter was made with.
        :raises FilterNotFoundError: there is none.
        :raises FilterMismatchError: it is of another class, or was made with another `encode`.
        """
        try:
            return super().open(client, name, **cast("Any", options))
        except FilterMismatchError as error:
            with other_layout(error) as layout:
                found = cls(client, name, layout=layout, **options)
                found.reserve()
                return found

    @observed
    def snapshot(self) -> LocalFilter[I]:
        """Return a copy of the filter in this process, which answers without the server.

        It takes as much memory.  Reading costs the server some 1 ms a megabyte, in pieces of 0.1 ms.
        """
        return self._run(self._operations.snapshot())


@documented(Options)
class ScalingBloomFilter(ScalingConstructor[SyncClient, I], Filter[I], Expiring, Adopting[I]):
    """A Bloom filter that grows by itself, so that the number of items need not be known.

    It begins with room for `capacity` items.  When that is used up it gets another layer of `expansion`
    times the room, and so on; an item is in the filter if it is in any layer, and only the newest is written.
    Each layer errs less by `tightening_ratio` than the one before, so the rate of all together stays below
    `error_rate` however many there are.  Exactly one layer is begun however many writers reach the end of one
    at once, and everybody follows within the same call.

    A call costs the server a little more for each layer, and a client one more round trip when there is a new
    one.  A layer is made in one script, which keeps the server from others for 0.25 to 0.5 ms a megabyte.
    With `tightening_ratio` r, j full layers use 1 - r^j of `error_rate`; the rest is for those to come.
    All keys lie in one hash slot.

    :param client: a client of redis-py or valkey-py; nothing is sent before the first call.
    :param name: the key of the record; layers are `{name}:layer:0`, ...
    :param capacity: items that the first layer is made for.
    :param error_rate: the false-positive rate of all layers together, strictly between 0 and 1.
    :param expansion: how many times larger a layer is than the one before, at least 1; no layer is larger
        than a key can be (512 MB).
    :param tightening_ratio: the error rate of a layer as a share of that of the one before, strictly between
        0 and 1: a larger one saves memory if there are many layers.
    :param layout: `"blocked"`, whose calls are faster, or `"classic"`, which takes less memory.
    :param ttl: seconds (or a timedelta) from creation until the filter expires; None for never.
    :raises ValueError, TypeError: for bad arguments, before any I/O.
    """

    _stored_operations = ScalingOperations.from_server

    @classmethod
    def from_url(cls, url: str, name: str, **parameters: Unpack[ScalingParameters[I]]) -> Self:
        """Return a filter with a client of its own for the server at `url`: see `BloomFilter.from_url`."""
        return cls(addresses(url), name, **parameters)


@documented(Options)
class RotatingBloomFilter(RotatingConstructor[SyncClient, I], Filter[I]):
    """A Bloom filter that forgets: an item is in it if it was seen within the last `window`.

    An item that was added is found for at least `window`, and for at most `window` and one slice of it
    (`window / slices`), whatever the traffic; adding it again meanwhile does not prolong that.  Time is the
    server's.  Old layers expire by themselves, even if nobody calls any more.

    Each slice of time in which something is added has a layer of its own, made for the share of a slice
    (`capacity / slices`); when more than that comes in a slice it gets another one.  All keys lie in one hash
    slot.

    :param client: a client of redis-py or valkey-py; nothing is sent before the first call.
    :param name: the key of the record; layers are `{name}:layer:0`, ...
    :param capacity: items that are added within any window.  If there are more, the error rate grows in
        proportion; `FilterFullError` comes when there are 255 layers, until some of them are over.
    :param error_rate: the false-positive rate then, however unevenly the items come.
    :param window: seconds (or a timedelta) for which an item is found at least.
    :param slices: into how many slices the window is cut, 1 to 64: more forget more exactly, and cost more.
        None may be shorter than 100 ms.
    :param layout: `"blocked"`, whose calls are faster, or `"classic"`, which takes less memory.
    :raises ValueError, TypeError: for bad arguments, before any I/O.
    """

    _stored_operations = RotatingOperations.from_server

    @classmethod
    def from_url(cls, url: str, name: str, **parameters: Unpack[RotatingParameters[I]]) -> Self:
        """Return a filter with a client of its own for the server at `url`: see `BloomFilter.from_url`."""
        return cls(addresses(url), name, **parameters)


@documented(Options)
class ShardedBloomFilter(ShardedConstructor[SyncClient, I], Filter[I], Queueing[I], Expiring):
    """A Bloom filter of any capacity, in shards that are spread over a cluster or a list of servers.

    An item lives in one shard, so of any number of concurrent `add(x)` exactly one gets True, as with
    `BloomFilter`.  A batch goes to all shards at once.  A shard takes memory from its first item on;
    one that is lost is noticed like a whole filter: `FilterLostError`, until the caller calls `reserve()`,
    which goes on without the items of that shard, or `clear()`.

    :param client: a client of redis-py or valkey-py; of a cluster, which spreads the shards over its nodes,
        or of a server; or a list of clients of independent servers, always in the same order.
    :param name: the key of the record, which has all parameters; shards are `{name:0:…}`, `{name:1:…}`, ...
        It must not contain `}`.
    :param capacity: items that the filter is made for.  With `capacity` and `error_rate` a missing
        filter is created at first use and a stored one is checked; without, it must exist.
    :param error_rate: the false-positive rate at `capacity`, strictly between 0 and 1.
    :param shards: how many, 1 to 4,096; None for the stored number, and for a new filter as many as make
        none larger than 128 MB, at least 16.  A shard is made in one script, 0.25 to 0.5 ms a megabyte: more
        shards keep the server from others for less time, and make batches slower.
    :param layout: `"blocked"`, whose calls are faster, or `"classic"`, which takes up to 14% less memory;
        None for the stored one (a new filter gets the default, blocked).
    :param seed: of the hash that picks the shard; None for the stored one, or the default.
    :param ttl: seconds (or a timedelta) from creation until the filter expires; None for never.
    :raises ValueError, TypeError: for bad arguments, before any I/O.
    """

    @classmethod
    def from_url(
        cls, url: str | Sequence[str], name: str, **parameters: Unpack[ShardedParameters[I]]
    ) -> Self:
        """Return a filter with a client of its own for each server: see `BloomFilter.from_url`."""
        return cls(addresses(url), name, **parameters)


@documented(Options)
class CountingBloomFilter(CountingConstructor[SyncClient, I], Filter[I], Queueing[I], Expiring):
    """A Bloom filter that items can be removed from: it counts how often each was added.

    Every `add(x)` counts, also that of an item which was there: one that was added twice is in until it has
    been removed twice.  Of concurrent `add(x)` of an item that is not in, exactly one gets True.  An item
    that was added, and not removed as often since, is always found.

    Remove only items that were added.  One that was not, but is taken for present (its chance is about
    `error_rate` once `capacity` items are in), is removed all the same, which lowers counters of other items,
    and these may then be missed.  The removal of an item that is not in is refused, and nothing is changed.

    A counter that has reached 15 stays there, so that no item is ever missed on its account; items that are
    added so often are found even after they were removed.

    It takes four times the memory of a filter in the classic layout.  `load` is `add_many`, and after a
    fault it must not be called again with items that were already counted.

    :param client: a client of redis-py or valkey-py; nothing is sent before the first call.
    :param name: the key.
    :param capacity: different items that the filter is made for.  With `capacity` and `error_rate` a
        missing filter is created at first use and a stored one is checked; without, it must exist.
    :param error_rate: the false-positive rate at `capacity`, strictly between 0 and 1.
    :param ttl: seconds (or a timedelta) from creation until the filter expires; None for never.
    :raises ValueError, TypeError: for bad arguments, before any I/O.
    """

    _operations: CountingOperations
    _stored_operations = CountingOperations

    @classmethod
    def from_url(cls, url: str, name: str, **parameters: Unpack[CountingParameters[I]]) -> Self:
        """Return a filter with a client of its own for the server at `url`: see `BloomFilter.from_url`."""
        return cls(addresses(url), name, **parameters)

    @observed
    def remove(self, item: I, *, token: str | None = None) -> bool:
        """Take an item out once; True if it was in, False (and nothing is changed) if it was not.

        It is out when it has been removed as often as it was added.  One round trip.

        If an `add` of the item by this object has no answer yet (`OutcomeUnknownError`), that is settled
        first: it counts once, and calling `add` again is another one.

        :param token: that of an `OutcomeUnknownError`; the answer is that of the call it came from.
        :raises OutcomeUnknownError: no answer came.  Within a minute a second call on the same object, or
            one with its `token` from anywhere, answers as this one would have; make one of the two.
        """
        return self._run(self._operations.remove(item, token=token))
