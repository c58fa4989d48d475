"""The sides of this library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from benchmarks.runner.bench import Bench
from benchmarks.sides.peer import CAPACITY, RATE, Peer
from bloomredis import CountingBloomFilter, RotatingBloomFilter, ScalingBloomFilter, ShardedBloomFilter


class OwnFilter(Peer):
    """A filter of this library."""

    filter: Any
    key: ClassVar[str]
    own: ClassVar[dict[str, Any]] = {}
    """Options of all its filters."""

    def add_each(self, items: Sequence[str]) -> list[bool]:
        add = self.filter.add
        return [add(item) for item in items]

    def contains_each(self, items: Sequence[str]) -> list[bool]:
        contains = self.filter.contains
        return [contains(item) for item in items]

    def add_many(self, items: Sequence[str]) -> list[bool]:
        added: list[bool] = self.filter.add_many(items)
        return added

    def contains_many(self, items: Sequence[str]) -> list[bool]:
        found: list[bool] = self.filter.contains_many(items)
        return found


class Ours(OwnFilter):
    """A `BloomFilter`."""

    name = "bloomredis"
    key = "bloomredis"

    def __init__(
        self,
        bench: Bench,
        *,
        capacity: int = CAPACITY,
        error_rate: float = RATE,
        suffix: str = "",
        **options: Any,
    ) -> None:
        options = self.own | options
        self.filter = bench.filter(f"{self.key}{suffix}", capacity=capacity, error_rate=error_rate, **options)


class OursByModule(Ours):
    """This library with the server's module."""

    name = "bloomredis, module"
    own: ClassVar[dict[str, Any]] = {"layout": "module"}
    key = "bloomredis by module"

    @classmethod
    def missing(cls, bench: Bench) -> str | None:
        """Return the reason why the module is missing, or None."""
        return bench.missing.get("RedisBloom")


class OtherKind(OwnFilter):
    """A filter of another class than `BloomFilter`."""

    kind: ClassVar[Any]
    share: ClassVar[int] = 1
    """The capacity for all items as a multiple of the filter's."""

    def __init__(
        self,
        bench: Bench,
        *,
        capacity: int = CAPACITY,
        error_rate: float = RATE,
        suffix: str = "",
        client: Any = None,
        **options: Any,
    ) -> None:
        layout = {} if bench.layout is None else {"layout": bench.layout}
        self.filter = self.kind(
            client or bench.client,
            f"{self.key}{suffix}",
            capacity=capacity // self.share,
            error_rate=error_rate,
            **(layout | self.own | options),
        )
        self.filter.create()


class Scaling(OtherKind):
    """A growing filter whose first layer has room for all items."""

    name = "bloomredis, scaling"
    key = "bloomredis that grows"
    kind = ScalingBloomFilter


class ScalingFromSmall(Scaling):
    """A growing filter that starts with room for a sixteenth of the items."""

    name = "bloomredis, scaling from a sixteenth"
    key = "bloomredis that was small"
    share = 16


class Rotating(OtherKind):
    """A rotating filter that gets all items of a window in one slice."""

    name = "bloomredis, rotating"
    key = "bloomredis that forgets"
    kind = RotatingBloomFilter
    own: ClassVar[dict[str, Any]] = {"window": 86_400}


class Sharded(OtherKind):
    """A sharded filter, with 16 shards by default."""

    name = "bloomredis, sharded"
    key = "bloomredis in shards"
    kind = ShardedBloomFilter


class Counting(OtherKind):
    """A counting filter; it has one layout."""

    name = "bloomredis, counting"
    key = "bloomredis that counts"

    @staticmethod
    def kind(client: Any, name: str, *, layout: object = None, **parameters: Any) -> Any:
        """Return the filter, whatever the layout of the other sides."""
        del layout
        return CountingBloomFilter(client, name, **parameters)
