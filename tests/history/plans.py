"""Plans of rounds: all that the coordinator and its worker processes must agree on."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, get_args

from bloomredis.stored.shards import record as shard_record
from tests.rules.calls import Terms

Kind = Literal["items", "claims", "counting", "module", "scaling", "rotating", "sharded"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

SIZE: Final[dict[str, Any]] = {"capacity": 50_000, "error_rate": 1e-9}
ITEMS_A_SECOND: Final = 500
WINDOW: Final = 40

SLICES: Final = 4
REMEMBERED: Final = 0.8
"""Seconds for which a rotating filter certainly finds an item."""
SHARDS: Final = 8
LATEST_COPY: Final = 0.5
"""Seconds after a call's end within which a late copy may be executed, plus a wide margin."""
LATEST_COPY_OF_A_FROZEN_NODE: Final = 5.0


class Made(NamedTuple):
    """The class and parameters of the filters of a kind.

    :ivar called: the name of the public class.
    :ivar faults: the names in `DISTURBANCES` that can happen to them.
    :ivar seconds: factor of a round's length.
    """

    called: str
    options: dict[str, Any]
    faults: Sequence[str]
    seconds: float = 1.0


_OF_A_KEY: Final = ("flush_all", "evict_record", "clear", "acknowledge")
_WHOLE: Final = (*_OF_A_KEY, "two_clears", "delete", "crash_clear", "crash_growth")

MADE: Final[dict[Kind, Made]] = {
    "items": Made("BloomFilter", SIZE, _OF_A_KEY),
    "claims": Made("BloomFilter", SIZE, _OF_A_KEY),
    "counting": Made("CountingBloomFilter", SIZE, ()),
    "module": Made(
        "BloomFilter", {**SIZE, "layout": "module"}, ("flush_all", "evict_record", "clear", "delete")
    ),
    "scaling": Made(
        "ScalingBloomFilter", {"capacity": 16, "error_rate": 1e-9, "expansion": 1}, (*_WHOLE, "evict_layer")
    ),
    "rotating": Made(
        "RotatingBloomFilter",
        {"capacity": 600, "error_rate": 1e-9, "window": REMEMBERED, "slices": SLICES},
        (*_WHOLE, "evict_layer", "idle"),
        seconds=2.0,
    ),
    "sharded": Made(
        "ShardedBloomFilter", {**SIZE, "shards": SHARDS}, (*_WHOLE, "evict_shard", "away"), seconds=2.0
    ),
}


@dataclass(frozen=True)
class Plan:
    """A round on its own filter, from `start` to `end` on the monotonic clock.

    :ivar seed: the seed of everything random in the round; also the filter's name.
    :ivar port: the port of the proxy.
    :ivar disturbances: disturbances that happen to the filter from time to time.
    :ivar claims: workers claim items instead of adding them.
    :ivar nodes: the ports of a cluster's nodes, if the filter is on one.
    :ivar connections: the limit of each client's pool; None for redis-py's default.
    :ivar most: the largest number of items in a batch.
    :ivar width: the number of items that all workers use at one time.
    """

    seed: str
    kind: Kind
    port: int
    start: float
    end: float
    disturbances: Sequence[str] = ()
    on_lost: Literal["raise", "recreate"] = "raise"
    claims: bool = False
    nodes: Sequence[int] = ()
    connections: int | None = None
    most: int = 8
    width: int = WINDOW
    retry_safe: bool = True

    @property
    def made(self) -> Made:
        """The class and parameters of the filter."""
        return MADE[self.kind]

    @property
    def terms(self) -> Terms:
        """What the rules know of the filter."""
        late = LATEST_COPY_OF_A_FROZEN_NODE if self.nodes else LATEST_COPY
        return Terms(self.kind, self.on_lost, self.claims, REMEMBERED, SLICES, late, self.shard)

    @property
    def options(self) -> dict[str, Any]:
        """The options of every filter object."""
        made = dict(self.made.options)
        if self.nodes:
            made |= {"min_replicas": 1, "replica_timeout": 0.1}
            if self.kind == "scaling":  # the items of a long round
                made["expansion"] = 2
        return made | {"on_lost": self.on_lost, "retry_safe": self.retry_safe}

    def dice(self, name: str) -> random.Random:
        """Return the random numbers of a worker."""
        return random.Random(f"{self.seed} {name}")

    def goes_on(self) -> bool:
        """Return whether the round still has time."""
        return time.monotonic() < self.end

    def window(self) -> Sequence[int]:
        """Return the numbers of the items that all workers use at this time.

        The items of a rotating filter come back before and after they expire.
        """
        front = int((time.monotonic() - self.start) * ITEMS_A_SECOND)
        if self.kind == "rotating":
            front %= int(REMEMBERED * 1.2 * ITEMS_A_SECOND)
        return range(front, front + self.width)

    def shard(self, item: str) -> int | None:
        """Return the shard of an item, or None without shards."""
        return self._shards.number(item.encode()) if self.kind == "sharded" else None

    @cached_property
    def _shards(self) -> shard_record.ShardRecord:
        return shard_record.plan_record(**self.made.options)


def plan(seed: int, number: int, port: int, seconds: float, without: Collection[str] = ()) -> Plan:
    """Return the plan of a round: kinds alternate, with losses and without.

    :param without: disturbances and values of `on_lost` to leave out.
    """
    dice = random.Random(f"{seed} {number}")
    turns: tuple[tuple[Kind, bool], ...] = (
        *(("items", False), ("claims", False), ("counting", False)),
        *(("scaling", True), ("rotating", True), ("sharded", True)),
        *(("items", True), ("claims", dice.random() < 0.5), ("module", dice.random() < 0.8)),
        *((kind, dice.random() < 0.8) for kind in ("scaling", "rotating", "sharded")),
    )
    kind, losses = turns[number % len(turns)]
    start = time.monotonic()
    ways: tuple[Literal["raise", "recreate"], ...] = ("raise", "recreate")
    allowed = [way for way in ways if way not in without] or ["raise"]
    return Plan(
        seed=f"{seed}-{number}",
        kind=kind,
        port=port,
        start=start,
        end=start + seconds * MADE[kind].seconds,
        disturbances=[each for each in MADE[kind].faults if losses and each not in without],
        on_lost=dice.choice(allowed),
        claims=kind == "claims" or (kind in ("module", "scaling", "sharded") and dice.random() < 0.25),
    )
