"""Disturbances of a round's filter: it is emptied, evicted, cleared twice at once, left half cleared."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import redis

import bloomredis
from bloomredis import FilterLostError
from bloomredis.stored.header import ACKNOWLEDGED, FLAGS_BYTE
from bloomredis.stored.layers.record import RotatingRecord, ScalingRecord
from bloomredis.stored.shards import record as shard_record
from tests.history.crashing import Crash, Work
from tests.history.faults import Faults
from tests.history.plans import REMEMBERED, SHARDS, SLICES, Plan
from tests.history.watching import GENERATION, REPLACED, Watch, Watched
from tests.rules.calls import OPERATOR, Call
from tests.rules.generations import Loss
from tests.support.background import started
from tests.support.inside import inside
from tests.support.servers import Server

PACES: Final = (0.25, 0.25, 0.8)
"""Approximate seconds between two losses."""

STALLS: Final = (0.0, 0.01, 0.05, 0.2)
"""Seconds for which a process pauses half-way."""

AHEAD: Final = 0.02
"""Seconds that a process is ahead of others."""


Crashes = Callable[[Crash], Sequence[tuple[float, float]]]


def acknowledged(f: Any) -> Call:
    """Acknowledge the loss of a filter as `bloomredis acknowledge` does; return the record of the call."""
    start = time.monotonic()
    with suppress(FilterLostError):  # a shard is missing
        f.create()
    f.acknowledge()
    end = time.monotonic()
    return Call(f"{OPERATOR} {start}", OPERATOR, "acknowledge", "", start, end=end, state="answered")


class Disturber:
    """Disturbs a round and records the losses.

    :ivar calls: the acknowledgements of an operator, and the calls of clear().
    :ivar met: how often each disturbance happened.
    :param crash: runs a process, kills it, and returns when it replaced the filter.
    :param faults: the faults of the workers' connections.
    """

    def __init__(self, client: redis.Redis, what: Plan, crash: Crashes, faults: Faults) -> None:
        self.losses: list[Loss] = []
        self.calls: list[Call] = []
        self.met: Counter[str] = Counter()
        self._client = client
        self._what = what
        self._crashing = crash
        self._faults = faults
        self._dice = what.dice("disturbances")
        self._numbers = itertools.count()
        self._pace = self._dice.choice(PACES)
        self._idle = self._filter(on_lost="raise")
        self._used = float("-inf")

    def run(self, over: threading.Event) -> None:
        """Disturb until the round ends."""
        due = self._what.start + self._dice.uniform(0.0, self._pace)
        if "idle" in self._what.disturbances:
            self._use_idle()
        while not over.wait(self._dice.uniform(0.005, 0.1)):
            self._client.script_flush()
            if self._what.disturbances and time.monotonic() > due and self._what.goes_on():
                name = self._dice.choice(self._what.disturbances)
                DISTURBANCES[name](self)
                self.met[name] += 1
                due = time.monotonic() + self._dice.uniform(0.0, 2 * self._pace)

    def _filter(self, watch: Watch | None = None, on_lost: str = "recreate") -> Any:
        kind: Any = getattr(bloomredis, self._what.made.called)
        made = Watched(self._client, watch or Watch(b""))
        return kind(made, self._what.seed, **{**self._what.options, "on_lost": on_lost})

    def _lost(self, what: str, start: float, **more: Any) -> None:
        self.losses.append(Loss(start, time.monotonic(), what, **more))

    # -- losses that the library does not cause

    def nothing(self) -> None:
        """Do nothing."""

    def flush_all(self) -> None:
        """Remove every key."""
        start = time.monotonic()
        self._client.flushall()
        self._lost("FLUSHALL", start)

    def evict_record(self) -> None:
        """Evict the record, or the only key.

        A late copy of the call that made a sharded filter's record may make it again, and the shards with it.
        """
        start, seed, client = time.monotonic(), self._what.seed, self._client
        is_sharded = self._what.kind == "sharded"
        before: Any = client.getdel(seed) if is_sharded else client.unlink(seed)
        if not before:
            return
        self._opened()
        after: Any = client.get(seed) if is_sharded else None
        if after is None or after[GENERATION] != before[GENERATION]:
            self._lost("the record is evicted", start)

    def evict_layer(self) -> None:
        """Evict a layer of the record; for a rotating filter the newest, which has not expired."""
        stored: Any = self._client.get(self._what.seed)
        if stored is None:
            return
        kind = RotatingRecord if self._what.kind == "rotating" else ScalingRecord
        numbers = kind.parse(stored).numbers
        number = numbers[0] if self._what.kind == "rotating" else self._dice.choice(numbers)
        start = time.monotonic()
        if self._client.unlink(f"{{{self._what.seed}}}:layer:{number}"):
            self._lost(f"layer {number} is evicted", start, lasts=True)

    def evict_shard(self) -> None:
        """Evict a shard; the loss is uncertain if the record does not name that shard."""
        number = self._dice.randrange(SHARDS)
        key = shard_record.key(self._what.seed, SHARDS, number)
        client = self._client
        stored: Any = client.get(self._what.seed)
        named = stored and shard_record.parse(stored).made[number]
        sure = bool(named) and client.getrange(key, 48, 55) == named.to_bytes(8, "big")
        start = time.monotonic()
        if client.unlink(key):
            self._lost(f"shard {number} is evicted", start, shard=number, sure=sure)

    def acknowledge(self) -> None:
        """Remove every key, and let an operator acknowledge the loss."""
        self.flush_all()
        self.calls.append(acknowledged(self._filter(on_lost="raise")))

    def away(self) -> None:
        """Make the server unreachable for a while."""
        self._faults.leave(self._dice.choice((0.02, 0.1, 0.4)))

    # -- calls of the library

    def clear(self) -> None:
        """Clear the filter."""
        self._emptied("clear")

    def two_clears(self) -> None:
        """Clear the filter in two processes at once, each of which may pause half-way."""
        self._at_once("clear")

    def delete(self) -> None:
        """Delete the filter, in one process or in two at once."""
        if self._dice.random() < 0.5:
            self._emptied("delete")
        else:
            self._at_once("delete")

    def _at_once(self, verb: str) -> None:
        for each in [started(lambda: self._emptied(verb)) for _ in range(2)]:
            each.result(20)

    def _emptied(self, verb: str) -> None:
        stall = self._dice.choice(STALLS)
        watch = Watch(
            self._what.seed.encode(),
            stop=lambda: time.sleep(stall),
            at=(REPLACED, "describe", "describe_layers", "reserve_record"),
            after=self._dice.randint(1, 4),
        )
        start = time.monotonic()
        getattr(self._filter(watch), verb)()
        if watch.replaced:
            self._replaced(verb, watch.replaced, start)
        else:
            self._lost(f"{verb}()", start, sure=False)  # the filter may have been missing
        if verb == "clear":
            self._cleared(watch.replaced, start)

    def _replaced(self, verb: str, spans: Sequence[tuple[float, float]], start: float) -> None:
        """Record when a call of the library replaced the filter; for a sharded one, part by part."""
        if self._what.kind == "sharded" and spans:
            self._opened()
            self._lost(f"{verb}()", start)
        else:
            self.losses += [Loss(*span, f"{verb}()") for span in spans]

    def _cleared(self, spans: Sequence[tuple[float, float]], start: float) -> None:
        """Record a clear() if it has marked the filter: objects that have raised a loss go on with it.

        The module's filters are never marked, and a sharded one only at the end of a clear().
        """
        if self._what.kind == "module":
            return
        flags: Any = self._client.getrange(self._what.seed, FLAGS_BYTE, FLAGS_BYTE)
        if flags and flags[0] & ACKNOWLEDGED:
            start, end = min([first for first, _ in spans], default=start), time.monotonic()
            name = f"clear {next(self._numbers)}"
            self.calls.append(Call(name, "disturber", "clear", "", start, end=end, state="answered"))

    def _opened(self) -> None:
        """Open a sharded filter, which replaces leftover shards of an earlier one."""
        if self._what.kind == "sharded":
            self._filter().create()

    def crash_clear(self) -> None:
        """Kill a process during clear() or soon after it."""
        self._crash("clear", self._dice.randint(1, 4))

    def crash_growth(self) -> None:
        """Kill a process that adds items and begins layers or shards for them."""
        self._crash("add", self._dice.randint(1, 60))

    def _crash(self, work: Work, after: int) -> None:
        socket = self._client.connection_pool.connection_kwargs["path"]
        crash = Crash(self._what, socket, work, after, next(self._numbers))
        start = time.monotonic()
        spans = self._crashing(crash)
        self._replaced(f"{work}() of a process that is killed", spans, start)
        if work == "clear":
            self._cleared(spans, start)

    def idle(self) -> None:
        """After a loss, let a process without earlier knowledge call first."""
        if time.monotonic() > self._used + REMEMBERED * (1 + 2 / SLICES):
            self._faults.hold(AHEAD)
            self.flush_all()
            self._use_idle()

    def _use_idle(self) -> None:
        with suppress(FilterLostError):
            self._idle.add(f"idle {next(self._numbers)}")
        if inside(self._idle).stored.handle is None:
            self._idle.acknowledge()
        self._used = time.monotonic()


DISTURBANCES: Final[dict[str, Callable[[Disturber], object]]] = {
    "flush_all": Disturber.flush_all,
    "evict_record": Disturber.evict_record,
    "evict_layer": Disturber.evict_layer,
    "evict_shard": Disturber.evict_shard,
    "acknowledge": Disturber.acknowledge,
    "clear": Disturber.clear,
    "two_clears": Disturber.two_clears,
    "delete": Disturber.delete,
    "crash_clear": Disturber.crash_clear,
    "crash_growth": Disturber.crash_growth,
    "idle": Disturber.idle,
    "away": Disturber.away,
    "nothing": Disturber.nothing,
}


@contextmanager
def disturbed(server: Server, what: Plan, crash: Crashes, faults: Faults) -> Iterator[Disturber]:
    """Repeat SCRIPT FLUSH, and lose the filter if planned; yield the disturber."""
    over = threading.Event()
    with server.client() as client:
        disturber = Disturber(client, what, crash, faults)
        disturbing = started(lambda: disturber.run(over))
        try:
            yield disturber
        finally:
            over.set()
            disturbing.result(20)
