"""Callers share short pools of connections to a cluster whose nodes freeze, die and give slots away.

Each item belongs to one caller, so each answer is known beforehand.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pytest
import redis
import redis.asyncio

import bloomredis
import bloomredis.asyncio
from bloomredis import BatchInterruptedError
from tests.support.background import started
from tests.support.clusters import SERVERS, Cluster
from tests.support.clusters import cluster as formed
from tests.support.resharding import Told
from tests.support.servers import binaries
from tests.support.sizes import sized

SIZE: Final[dict[str, Any]] = {
    "capacity": 200_000,
    "error_rate": 1e-9,
    "min_replicas": 1,
    "replica_timeout": 0.05,
}
BATCH: Final = 20
LEASE: Final = 300.0
"""Longer than any storm."""


@dataclass
class Storm:
    """The answers of all callers.

    :ivar wrong: what was asked, and the wrong answer.
    """

    answers: int
    seed: int
    given: int = 0
    done: Counter[str] = field(default_factory=Counter)
    told: Told = field(default_factory=lambda: Told("storm"))
    wrong: list[tuple[str, object]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def goes_on(self) -> bool:
        """True until there are enough answers, or a wrong one, and each disturbance has happened."""
        return not self.wrong and (self.given < self.answers or len(self.done) < len(DISTURBANCES))

    def take(self, asked: str, answer: object, expected: object, count: int = 1) -> None:
        """Compare an answer with the expected one."""
        with self.lock:
            self.given += count
            if answer != expected:
                self.wrong.append((asked, answer))

    def met(self, error: BaseException | None) -> str | None:
        """Return the token for a retry; raise an error that the disturbances do not explain."""
        with self.lock:
            return self.told.met(error)

    def __str__(self) -> str:
        return f"{self.given:,} answers, {dict(self.done)}, {dict(self.told.errors)}, {len(self.wrong)} wrong"


class Caller:
    """A thread or a task with items of its own, in filters that it shares with the others."""

    def __init__(self, storm: Storm, number: int, filters: Filters, pause: Callable[[], Any]) -> None:
        self.storm, self.number, self.filters, self.pause = storm, number, filters, pause
        self.dice = random.Random(f"{storm.seed}-{number}")
        self._last = 0

    async def begin(self) -> None:
        """Create the filters."""
        for each in self.filters:
            await self._until("reserve", each)

    async def work(self) -> None:
        """Make calls of all verbs until the storm ends."""
        scenes = [self.adds, self.adds, self.removes, self.batches, self.claims]
        while self.storm.goes_on:
            await self.dice.choice(scenes)()

    async def adds(self) -> None:
        """Add an item, add it again, and test it."""
        item = self._item()
        await self._expect("add", self.filters.plain, item, True)
        await self._expect("add", self.filters.plain, item, False)
        self.storm.take("contains", await self._until("contains", self.filters.plain, item), True)

    async def removes(self) -> None:
        """Add an item to a counting filter, remove it, and remove it again."""
        item = self._item()
        await self._expect("add", self.filters.counting, item, True)
        await self._expect("remove", self.filters.counting, item, True)
        await self._expect("remove", self.filters.counting, item, False)

    async def batches(self) -> None:
        """Add a batch to a plain or a sharded filter, in which each item is new; then again."""
        f = self.dice.choice([self.filters.plain, self.filters.sharded])
        items = [self._item() for _ in range(BATCH)]
        for expected in (True, False):
            answers = list[bool]()
            rest: list[str] = items
            while rest:
                try:
                    answers += await _value(f.add_many(rest))
                    rest = []
                except BatchInterruptedError as error:
                    self.storm.met(error.__cause__)
                    answers += error.results
                    rest = list(error.rest)
                except Exception as error:
                    self.storm.met(error)
                await _value(self.pause())
            self.storm.take("add_many", answers, [expected] * BATCH, BATCH)

    async def claims(self) -> None:
        """Claim an item, commit the claim, and find the item done."""
        item = self._item()
        claim = await self._claimed(item)
        self.storm.take("claim", claim.state, "claimed")
        if claim:
            while True:
                try:
                    await _value(claim.commit())
                    break
                except Exception as error:
                    self.storm.met(error)
                await _value(self.pause())
            self.storm.take("commit", claim.state, "done")
        self.storm.take("claim again", (await self._claimed(item)).state, "done")

    async def _claimed(self, item: str) -> Any:
        while True:
            try:
                return await _value(self.filters.plain.claim(item, LEASE))
            except Exception as error:
                self.storm.met(error)
            await _value(self.pause())

    async def _expect(self, verb: str, f: Any, item: str, expected: bool) -> None:  # noqa: FBT001 - an answer
        self.storm.take(verb, await self._until(verb, f, item, token=None), expected)

    async def _until(self, verb: str, f: Any, *items: str, **options: Any) -> object:
        """Return the answer to a call, which is made again until there is one."""
        while True:
            try:
                return await _value(getattr(f, verb)(*items, **options))
            except Exception as error:
                token = self.storm.met(error)
                if token is not None and options:
                    options = {"token": token}
            await _value(self.pause())

    def _item(self) -> str:
        self._last += 1
        return f"{self.number}-{self._last}"


@dataclass(frozen=True)
class Filters:
    """The filters that all callers share."""

    plain: Any
    counting: Any
    sharded: Any

    @classmethod
    def of(cls, package: Any, client: Any, **options: Any) -> Filters:
        return cls(
            package.BloomFilter(client, "seen", **SIZE, **options),
            package.CountingBloomFilter(client, "counted", **SIZE, **options),
            package.ShardedBloomFilter(client, "spread", shards=4, **SIZE, **options),
        )

    def __iter__(self) -> Iterator[Any]:
        return iter((self.plain, self.counting, self.sharded))


async def _value(found: Any) -> Any:
    return await found if inspect.isawaitable(found) else found


def _finish(caller: Caller) -> None:
    """Let a thread make the calls."""
    _finished(caller.work())


def _finished(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("a synchronous call must not wait for a loop")


def in_threads(storm: Storm, nodes: Cluster, callers: int, pool: dict[str, Any]) -> None:
    """Let threads share a client."""
    with redis.RedisCluster(**nodes.at, **pool) as client:
        filters = Filters.of(bloomredis, client)
        _finished(Caller(storm, -1, filters, lambda: time.sleep(0.01)).begin())
        disturbing = started(lambda: disturb(storm, nodes))
        made = [Caller(storm, number, filters, lambda: time.sleep(0.001)) for number in range(callers)]
        for one in [started(partial(_finish, each)) for each in made]:
            one.result(3600)
        disturbing.result(600)


def in_tasks(storm: Storm, nodes: Cluster, callers: int, pool: dict[str, Any]) -> None:
    """Let tasks share a client; half of the storms share round trips."""

    async def main() -> None:
        async with redis.asyncio.RedisCluster(**nodes.at, **pool) as client:
            filters = Filters.of(bloomredis.asyncio, client, coalesce=storm.seed % 2 == 0)
            await Caller(storm, -1, filters, lambda: asyncio.sleep(0.01)).begin()
            disturbing = started(lambda: disturb(storm, nodes))
            work = [Caller(storm, number, filters, lambda: asyncio.sleep(0.001)) for number in range(callers)]
            await asyncio.gather(*(each.work() for each in work))
            await asyncio.to_thread(disturbing.result, 600)

    asyncio.run(main())


def disturb(storm: Storm, nodes: Cluster) -> None:
    """Freeze nodes, move slots and kill primaries until the storm ends."""
    dice = random.Random(storm.seed)
    keys = ["seen", "counted", "spread"]
    with nodes.client() as client:
        keys += [key.decode() for key in client.keys("{spread:*}", target_nodes="primaries")]
    named = list(DISTURBANCES)
    while storm.goes_on:
        # Each once, then mostly freezes: a kill takes seconds.
        missing = [name for name in named if name not in storm.done]
        name = missing[0] if missing else dice.choices(named, [12, 6, 1])[0]
        DISTURBANCES[name](nodes, dice.choice(keys), dice)
        storm.done[name] += 1
        time.sleep(dice.random() * storm.answers / 40_000)  # a long storm has longer lulls


def _freeze(nodes: Cluster, key: str, dice: random.Random) -> None:
    """Freeze the owner of a key for longer than the clients wait, and for less than the others suspect it."""
    process: Any = nodes.primary_of(key).server.process
    process.send_signal(signal.SIGSTOP)
    time.sleep(dice.uniform(0.2, 0.6))
    process.send_signal(signal.SIGCONT)


def _migrate(nodes: Cluster, key: str, dice: random.Random) -> None:
    owner = nodes.primary_of(key)
    nodes.migrate(key, dice.choice([node for node in nodes.primaries() if node is not owner]))


def _kill(nodes: Cluster, key: str, dice: random.Random) -> None:
    owner = nodes.primary_of(key)
    nodes.kill(owner)
    nodes.bring_back(owner)


DISTURBANCES: Final[dict[str, Callable[[Cluster, str, random.Random], None]]] = {
    "freeze": _freeze,
    "migration": _migrate,
    "kill": _kill,
}


@pytest.mark.timeout(3600)
@pytest.mark.faults
@pytest.mark.parametrize(
    ("way", "callers", "pool"),
    [
        pytest.param(in_threads, 8, 2, id="threads-2"),
        pytest.param(in_threads, 32, 10, id="threads-10"),
        pytest.param(in_threads, 160, None, id="threads-default", marks=pytest.mark.long),
        pytest.param(in_tasks, 8, 2, id="tasks-2"),
        pytest.param(in_tasks, 32, 10, id="tasks-10", marks=pytest.mark.long),
        pytest.param(in_tasks, 200, None, id="tasks-default", marks=pytest.mark.long),
    ],
)
@sized("answers", make_test=4000, make_test_all=170_000)
def test_each_answer_is_the_expected_one(way: Any, callers: int, pool: int | None, answers: int) -> None:
    """A million answers in `make test-all`: adds, removes, batches, sharded batches and claims."""
    seed = random.SystemRandom().randrange(10**6)
    storm = Storm(answers, seed)
    options: dict[str, Any] = {"socket_timeout": 0.15} | ({} if pool is None else {"max_connections": pool})
    with formed(binaries()[SERVERS[seed % len(SERVERS)]]) as nodes:
        way(storm, nodes, callers, options)
    print(f"{SERVERS[seed % len(SERVERS)]}, seed {seed}: {storm}")  # noqa: T201 - shown if the test fails
    assert storm.wrong == []
    assert storm.told.errors["OutcomeUnknownError"] > 0
