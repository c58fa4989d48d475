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
from bloomredis import BatchInterruptedError, BloomFilter, FilterLostError, OutcomeUnknownError
from tests.support.background import PATIENCE, outcome, started
from tests.support.proxy import Held, Proxy, lost
from tests.support.servers import Server
from tests.support.values import for_each
from tests.support.waiting import wait_until

SIZE: dict[str, Any] = {"capacity": 10_000, "error_rate": 1e-9}


class UncopyableError(Exception):
    """An application's exception that copy.copy() cannot copy."""

    def __init__(self, name: str, why: object) -> None:
        super().__init__(f"{name}: {why}")


class UnkindError(BaseException):
    """An exception that `except Exception` does not catch."""


RAISED: dict[str, Callable[[object], BaseException]] = {
    "an error": RuntimeError,
    "an error that cannot be copied": lambda why: UncopyableError("seen", why),
    "sys.exit()": lambda _: SystemExit(3),
    "Ctrl-C": lambda _: KeyboardInterrupt(),
    "another": lambda _: UnkindError(),
}
"""Exceptions of a caller's own callable."""


def raising(name: str) -> Callable[[FilterLostError], None]:
    """Return a callable for `on_lost` that raises."""

    def on_lost(error: FilterLostError) -> None:
        raise RAISED[name](error)

    return on_lost


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


@pytest.mark.parametrize("what", RAISED)
def test_on_lost_raises_in_a_thread(any_proxy: Proxy, any_client: redis.Redis, what: str) -> None:
    """Each thread gets its own error, and the next call succeeds."""
    f = BloomFilter(any_proxy.client(), "seen", coalesce=True, on_lost=raising(what), **SIZE)
    company = Company(any_proxy, f, adds(f, "abcd"))
    any_client.delete("seen")
    found = company.outcomes()
    assert all(isinstance(each, BaseException) for each in found), found
    assert type(RAISED[what]("")) in {type(each) for each in found}
    f.reserve()
    assert started(lambda: f.add("later")).result(PATIENCE)


@pytest.mark.parametrize("what", RAISED)
def test_on_lost_raises_in_a_batch_of_a_thread(any_proxy: Proxy, any_client: redis.Redis, what: str) -> None:
    """The same holds for batches and single items that share a call."""
    f = BloomFilter(any_proxy.client(), "seen", coalesce=True, on_lost=raising(what), **SIZE)
    company = Company(
        any_proxy, f, [lambda: f.add_many(["a", "b"]), *adds(f, "c"), lambda: f.add_many(["d"])]
    )
    any_client.delete("seen")
    assert all(isinstance(each, BaseException) for each in company.outcomes())
    f.reserve()
    assert started(lambda: f.add_many(["later"])).result(PATIENCE) == [True]


@for_each("coalesce", [None, True])
def test_on_lost_uses_the_filter(any_client: redis.Redis, coalesce: Any) -> None:
    """An `on_lost` that refills the filter does not wait for the call that found the loss."""
    f: BloomFilter = BloomFilter(
        any_client, "seen", coalesce=coalesce, on_lost=lambda _: f.add_many(["known", "well"]), **SIZE
    )
    started(lambda: f.add("x")).result(PATIENCE)
    any_client.delete("seen")
    assert started(lambda: f.add("y")).result(PATIENCE)
    assert f.contains_many(["known", "well", "y"]) == [True] * 3


def test_on_lost_uses_the_filter_in_company(any_proxy: Proxy, any_client: redis.Redis) -> None:
    """The same holds if a shared call finds the loss."""
    f: BloomFilter = BloomFilter(
        any_proxy.client(), "seen", coalesce=True, on_lost=lambda _: f.add_many(["known", "well"]), **SIZE
    )
    company = Company(any_proxy, f, adds(f, "abc"))
    any_client.delete("seen")
    assert company.outcomes() == [True] * 3
    assert f.contains_many(["known", "a", "b", "c"]) == [True] * 4


@pytest.mark.parametrize("what", ["an error", "an error that cannot be copied", "another"])
def test_on_lost_raises_in_a_task(any_proxy: Proxy, any_client: redis.Redis, what: str) -> None:
    """Each task gets an error, and none gets CancelledError."""

    async def main() -> tuple[list[Any], bool]:
        async with any_proxy.asyncio_client() as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", on_lost=raising(what), **SIZE)
            await f.add("warm")
            held = Held()
            any_proxy.plan("add", held)
            first = asyncio.create_task(f.add("first"))
            await asyncio.to_thread(held.wait)
            waiting = [asyncio.create_task(f.add(item)) for item in "abcd"]
            await asyncio.sleep(0)
            any_client.delete("seen")
            held.go.set()
            assert await first
            found = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), PATIENCE)
            await f.reserve()
            return found, await f.add("later")

    found, later = asyncio.run(main())
    assert all(isinstance(each, BaseException) for each in found), found
    assert not any(isinstance(each, asyncio.CancelledError) for each in found)
    assert later


def test_a_task_group_ends_with_the_error(any_proxy: Proxy, any_client: redis.Redis) -> None:
    """A task group fails if none of its items was added."""
    done = []

    async def main() -> None:
        async with any_proxy.asyncio_client() as client:
            on_lost = raising("an error that cannot be copied")
            f = bloomredis.asyncio.BloomFilter(client, "seen", on_lost=on_lost, **SIZE)
            await f.add("warm")
            held = Held()
            any_proxy.plan("add", held)
            first = asyncio.create_task(f.add("first"))
            await asyncio.to_thread(held.wait)

            async def work(item: str) -> None:
                done.append(await f.add(item))

            async def release() -> None:
                any_client.delete("seen")
                held.go.set()
                await first

            async with asyncio.TaskGroup() as group:
                for item in "abc":
                    group.create_task(work(item))
                group.create_task(release())

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(main())
    assert caught.group_contains(UncopyableError)
    assert done == []


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
    """The same holds for tasks."""

    async def main() -> list[Any]:
        async with any_proxy.asyncio_client() as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
            await f.add("warm")
            held = Held()
            any_proxy.plan("add", held, lost)
            first = asyncio.create_task(f.add("first"))
            await asyncio.to_thread(held.wait)
            waiting = [asyncio.create_task(f.add(item)) for item in "xyxx"]
            await asyncio.sleep(0)
            held.go.set()
            assert await first
            return list(await asyncio.gather(*waiting, return_exceptions=True))

    errors = asyncio.run(main())
    assert [type(error) for error in errors] == [OutcomeUnknownError] * 4
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
