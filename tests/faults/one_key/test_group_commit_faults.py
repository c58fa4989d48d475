"""No exception of one caller hangs or silences another caller of a shared call."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

import bloomredis.asyncio
from bloomredis import BatchInterruptedError, BloomFilter, OutcomeUnknownError
from tests.support.background import PATIENCE, outcome, started
from tests.support.proxy import Held, Proxy, lost
from tests.support.servers import Server
from tests.support.sharing import shared
from tests.support.waiting import wait_until

SIZE: dict[str, Any] = {"capacity": 10_000, "error_rate": 1e-9}


class Company:
    """Threads of a filter: one call is in flight, and others wait to share the next."""

    def __init__(self, proxy: Proxy, f: BloomFilter, calls: Sequence[Callable[[], Any]]) -> None:
        started(lambda: f.add("warm")).result(PATIENCE)
        self._held = Held()
        proxy.plan("add", self._held)
        self.first = started(lambda: f.add("first"))
        self._held.wait()
        self.waiting: list[Future[Any]] = []
        for call in calls:
            self.waiting.append(started(call))
            wait_until("the call waits", lambda: len(f._adds._queue) == len(self.waiting))

    def outcomes(self) -> list[Any]:
        """Release the first call, and return the outcomes of the others."""
        self._held.go.set()
        assert outcome(self.first) is True
        return [outcome(each) for each in self.waiting]


def adds(f: BloomFilter, items: Sequence[str]) -> list[Callable[[], bool]]:
    """Return calls that add one item each."""
    return [partial(f.add, item) for item in items]


def test_equal_items_of_threads_have_tokens_of_their_own(any_proxy: Proxy, any_client: redis.Redis) -> None:
    """Of callers with one item in a shared call, only the first's token reports the item as new."""
    f = BloomFilter(any_proxy.client(), "seen", coalesce=True, **SIZE)
    company = Company(any_proxy, f, adds(f, ["x", "y", "x", "x"]))
    any_proxy.plan("add", lost)
    errors = company.outcomes()
    assert [type(error) for error in errors] == [OutcomeUnknownError] * 4
    elsewhere = BloomFilter(any_client, "seen", **SIZE)
    told = [elsewhere.add(x, token=error.token) for x, error in zip("xyxx", errors, strict=True)]
    assert told == [True, True, False, False]


def test_equal_items_of_tasks_have_tokens_of_their_own(any_proxy: Proxy, any_client: redis.Redis) -> None:
    """The same holds for tasks, and each has an error of its own."""

    async def main() -> list[Any]:
        async with any_proxy.asyncio_client() as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
            return await shared(any_proxy, f, map(f.add, "xyxx"), lost)

    errors = asyncio.run(main())
    assert [type(error) for error in errors] == [OutcomeUnknownError] * 4
    assert len({id(error) for error in errors}) == len({error.token for error in errors}) == 4
    elsewhere = BloomFilter(any_client, "seen", **SIZE)
    told = [elsewhere.add(x, token=error.token) for x, error in zip("xyxx", errors, strict=True)]
    assert told == [True, True, False, False]


def test_equal_items_of_batches_are_answered_once(any_proxy: Proxy) -> None:
    """Batches of a lost shared call each retry their rest: every item was new once."""
    f = BloomFilter(any_proxy.client(), "seen", coalesce=True, **SIZE)
    batches = [["x", "y"], ["x", "z"], ["z", "x"]]
    company = Company(any_proxy, f, [partial(f.add_many, batch) for batch in batches])
    any_proxy.plan("add", lost)
    errors = company.outcomes()
    assert [type(error) for error in errors] == [BatchInterruptedError] * 3
    told = [f.add_many(error.rest) for error in errors]
    assert [error.results for error in errors] == [[]] * 3
    assert told == [[True, True], [False, True], [False, False]]


def test_equal_items_of_batches_of_tasks_are_answered_once(any_proxy: Proxy) -> None:
    """The same holds for tasks."""
    batches = [["x", "y"], ["x", "z"], ["z", "x"]]

    async def main() -> None:
        async with any_proxy.asyncio_client() as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
            errors = await shared(any_proxy, f, map(f.add_many, batches), lost)
            assert [type(error) for error in errors] == [BatchInterruptedError] * 3
            told = [await f.add_many(error.rest) for error in errors]
            assert [error.results for error in errors] == [[]] * 3
            assert told == [[True, True], [False, True], [False, False]]

    asyncio.run(main())


def test_each_caller_has_an_error_of_its_own(any_proxy: Proxy) -> None:
    """What one caller adds to its traceback does not appear in another's."""
    f = BloomFilter(any_proxy.client(), "seen", coalesce=True, **SIZE)
    company = Company(any_proxy, f, adds(f, "abcd"))
    any_proxy.plan("add", lost)
    errors = company.outcomes()
    assert len({id(error) for error in errors}) == len({error.token for error in errors}) == 4


@pytest.mark.skipif(importlib.util.find_spec("gevent") is None, reason="gevent is not installed")
@pytest.mark.parametrize(("case", "ended"), [("queued", "b"), ("sending", "b"), ("sent", "c")])
def test_a_greenlet_that_times_out(any_server: Server, case: str, ended: str) -> None:
    """Wherever a greenlet times out, no other greenlet hangs, and on retry every item was new once."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.greenlets", any_server.socket, case],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["hanging"] == []
    assert found["later"] is True
    assert found["answers"][ended] == "Timeout"
    assert found["answers"]["a"] is True
    for item in "bcd":
        assert [found["answers"][item], found["again"][item]].count(True) == 1, found
