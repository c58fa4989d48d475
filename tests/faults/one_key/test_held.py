"""Faults that change no answer: lost, dropped and late copies by the thousand."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest
import redis

from bloomredis import (
    BatchInterruptedError,
    BloomError,
    BloomFilter,
    ClaimLostError,
    OutcomeUnknownError,
)
from tests.support.background import started
from tests.support.proxy import Exchange, Proxy, after, dropped, lost, passed
from tests.support.servers import Server
from tests.support.sizes import sized
from tests.support.values import for_each
from tests.support.waiting import wait_until

SIZE: dict[str, Any] = {"capacity": 25_000, "error_rate": 1e-9}
DELAYS = (0.001, 0.01, 0.1, 1.0)
WORKERS = 6


class Weather:
    """A fate that loses, drops and delays script calls at random, from a seed."""

    def __init__(self, seed: int, shares: dict[str, float]) -> None:
        self.happened = Counter(dict.fromkeys(shares, 0))
        self._dice = random.Random(seed)
        self._shares = shares
        self._late = 0

    def __call__(self, exchange: Exchange) -> bool:
        if not exchange.verb:
            return passed(exchange)
        at = self._dice.random()
        for what, share in self._shares.items():
            at -= share
            if at < 0:
                self.happened[what] += 1
                return bool(getattr(self, what)(exchange))
        return passed(exchange)

    def lose(self, exchange: Exchange) -> bool:
        """Execute the call, then end the connection."""
        return lost(exchange)

    def drop(self, exchange: Exchange) -> bool:
        """End the connection without executing the call."""
        return dropped(exchange)

    def delay(self, exchange: Exchange) -> bool:
        """End the connection, and execute the call after its retry or much later."""
        exchange.hang_up()
        self._late += 1
        time.sleep(self._dice.choice(DELAYS))  # blocks only this connection's thread
        try:
            exchange.execute()
        finally:
            self._late -= 1
        return False

    def wait(self) -> None:
        """Wait until every late copy has arrived."""
        wait_until("all late copies have arrived", lambda: self._late == 0)


@contextmanager
def stormy(proxy: Proxy, seed: int, shares: dict[str, float]) -> Iterator[Weather]:
    """Let the proxy lose calls for a while, then let the last copies arrive."""
    weather = Weather(seed, shares)
    proxy.fate = weather
    try:
        yield weather
    finally:
        proxy.calm()
        weather.wait()


def objects(proxy: Proxy, **options: Any) -> list[BloomFilter]:
    """Return three objects of one filter, whose clients retry never, once and twice."""
    made = [BloomFilter(proxy.client(retries=retries), "seen", **SIZE, **options) for retries in range(3)]
    for each in made:
        each.create()
    return made


def work_on(times: int, work: Callable[[int, random.Random], None], seed: int) -> None:
    """Let each worker repeat the work that many times."""

    def repeat(worker: int) -> None:
        dice = random.Random(seed * 100 + worker)
        for _ in range(times):
            work(worker, dice)

    for each in [started(partial(repeat, worker)) for worker in range(WORKERS)]:
        each.result()


def add_until_answered(f: BloomFilter, item: str) -> bool:
    """Retry an add until it has an answer, as a caller does."""
    while True:
        with suppress(BloomError):
            return f.add(item)


def add_all_until_answered(f: BloomFilter, items: Sequence[str]) -> list[bool]:
    """Retry a batch until it has an answer."""
    told: list[bool] = []
    while len(told) < len(items):
        try:
            told += f.add_many(items[len(told) :])
        except BatchInterruptedError as error:
            told += error.results
        except BloomError:
            continue
    return told


@pytest.mark.parametrize("layout", ["blocked", "classic"])
@sized("times", make_test=30, make_test_all=1200)
def test_every_item_is_new_once(server: Server, proxy: Proxy, layout: str, times: int) -> None:
    """Six threads add single items and batches over lost, dropped and late calls; the count is exact."""
    seed = random.randrange(1_000_000)
    pool = [f"{i}" for i in range(20_000)]
    news: Counter[str] = Counter()
    lock = threading.Lock()
    filters = objects(proxy, layout=layout)

    def work(worker: int, dice: random.Random) -> None:
        f = filters[worker % 3]
        items = dice.choices(pool, k=dice.choice((1, 1, 1, 3, 60, 700, 900)))
        told = [add_until_answered(f, items[0])] if len(items) == 1 else add_all_until_answered(f, items)
        with lock:
            news.update(item for item, new in zip(items, told, strict=True) if new)

    with stormy(proxy, seed, {"lose": 0.04, "drop": 0.02, "delay": 0.04}) as weather:
        work_on(times, work, seed)
    with server.client() as client:
        f = BloomFilter.open(client, "seen")
        inside = [item for item, there in zip(pool, f.contains_many(pool), strict=True) if there]
        assert news == Counter(inside), f"seed {seed}: {weather.happened}"
        assert f.info().count == len(inside), f"seed {seed}"
    assert min(weather.happened.values()) > 0


class Claimants:
    """Workers that claim items and commit or release them, and record each other's claims."""

    def __init__(self, filters: Sequence[BloomFilter], pool: Sequence[str]) -> None:
        self.committed: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._filters = filters
        self._pool = pool
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    def work(self, worker: int, dice: random.Random) -> None:
        """Claim an item, and treat it at random."""
        item = dice.choice(self._pool)
        claim = self._claim(self._filters[worker % 3], item)
        if not claim:
            return
        with self._lock:
            self._held[item] += 1
            if self._held[item] > 1 or self.committed[item]:
                self.wrong.append(f"two hold {item}")
        if dice.random() < 0.3:
            with self._lock:
                self._held[item] -= 1  # others may claim it once the release is sent
            with suppress(BloomError):
                claim.release()
        else:
            self._commit(claim, item)

    @staticmethod
    def _claim(f: BloomFilter, item: str) -> Any:
        while True:
            with suppress(BloomError):
                return f.claim(item, lease=120)

    def _commit(self, claim: Any, item: str) -> None:
        while True:
            try:
                claim.commit()
            except OutcomeUnknownError:
                continue
            except ClaimLostError:
                self.wrong.append(f"lost {item}")
            with self._lock:
                self._held[item] -= 1
                self.committed[item] += 1
            return


@sized("times", make_test=60, make_test_all=1000)
def test_every_item_is_committed_once(server: Server, proxy: Proxy, times: int) -> None:
    """Six threads claim, release and commit: an item never has two holders, and none is lost."""
    seed = random.randrange(1_000_000)
    pool = [f"{i}" for i in range(3000)]
    claimants = Claimants(objects(proxy), pool)
    with stormy(proxy, seed, {"lose": 0.05, "drop": 0.03, "delay": 0.04}) as weather:
        work_on(times, claimants.work, seed)
    assert claimants.wrong == [], f"seed {seed}: {weather.happened}"
    with server.client() as client:
        inside = BloomFilter.open(client, "seen").contains_many(pool)
    done = Counter(item for item, there in zip(pool, inside, strict=True) if there)
    assert claimants.committed == done, f"seed {seed}: {weather.happened}"
    assert min(weather.happened.values()) > 0


@pytest.mark.parametrize("layout", ["blocked", "classic"])
def test_a_full_memory_met_by_a_replay(server: Server, proxy: Proxy, bloom: Any, layout: str) -> None:
    """The call was executed, and its receipt answers, which needs no memory."""
    f = bloom(proxy.client(retries=1), "seen", layout=layout, **SIZE)
    f.add("warm")
    with server.client() as client:
        proxy.plan("add", lost, after(lambda: client.config_set("maxmemory", 1), passed))
        try:
            assert f.add("x")
        finally:
            client.config_set("maxmemory", 0)
    assert not f.add("x")


def test_a_clear_keeps_the_expiry(client: redis.Redis, bloom: Any) -> None:
    """A cleared filter expires at its old time."""
    f = bloom(client, "seen", ttl=1000, **SIZE)
    f.add("x")
    f.clear()
    assert 990 < client.ttl("seen") <= 1000


@for_each("name", ["{}x", "a}b", "{a", "x{y}z", "{", "}", "{}", "a b", "ä{ö}ü"])
def test_odd_names(client: redis.Redis, bloom: Any, name: str) -> None:
    """With braces anywhere in its name a filter works, and leaves only keys that expire."""
    f = bloom(client, name, **SIZE)
    assert [f.add("q"), f.add("q"), f.claim("r").state] == [True, False, "claimed"]
    others = [key for key in client.scan_iter() if key != name.encode()]
    assert len(others) == 2
    assert all(client.ttl(key) > 0 for key in others)
