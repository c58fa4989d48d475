"""Whatever ends the wait for a reply, the items of the call are pending."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import pytest
import redis

import bloomredis.asyncio
from bloomredis import BatchInterruptedError, BloomError, BloomFilter, CountingBloomFilter
from bloomredis.drivers.connections.clients import SyncClient
from bloomredis.stored.one_key.single import StoredFilter
from tests.support.proxy import Fate, Proxy, belied, dropped, lost, once_executed, passed, silent
from tests.support.sharing import shared
from tests.support.values import for_each

SIZE: dict[str, Any] = {"capacity": 50_000, "error_rate": 1e-9}
UNKNOWN = "ERR upstream failure"
"""An error that no server sends and a proxy may send."""


class SoftTimeLimitExceeded(Exception):  # noqa: N818 - Celery's name
    """The exception that a task queue's signal handler raises."""


RAISED: list[type[BaseException]] = [
    KeyboardInterrupt,
    TimeoutError,
    SoftTimeLimitExceeded,
    SystemExit,
    OSError,
]


@contextmanager
def interrupting(kind: type[BaseException]) -> Iterator[Fate]:
    """Yield a fate: the call is executed, and a signal interrupts its caller before the reply."""

    def handler(*_: object) -> None:
        raise kind("time is over")

    before, caller = signal.signal(signal.SIGUSR1, handler), threading.get_ident()
    try:
        yield once_executed(lambda: signal.pthread_kill(caller, signal.SIGUSR1), silent)
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("kind", RAISED)
def test_a_signal_handler_raises_in_an_add(any_proxy: Proxy, kind: type[BaseException]) -> None:
    """The item was new, and one retry is told so."""
    f = BloomFilter(any_proxy.client(), "seen", **SIZE)
    f.add("warm")
    with interrupting(kind) as fate:
        any_proxy.plan("add", fate)
        with pytest.raises(BaseException):  # noqa: B017 - a client may turn it into another exception
            f.add("x")
    assert [f.add("x"), f.add("x")] == [True, False]


@pytest.mark.parametrize("kind", RAISED)
@pytest.mark.parametrize("script", [1, 3])
def test_a_signal_handler_raises_in_a_batch(any_proxy: Proxy, kind: type[BaseException], script: int) -> None:
    """Every item of the batch is new on retry, whether or not it had an answer."""
    f = BloomFilter(any_proxy.client(), "seen", **SIZE)
    f.add("warm")
    items = [f"{i}" for i in range(2000)]
    with interrupting(kind) as fate:
        any_proxy.plan("add", *[passed] * (script - 1), fate)
        told: list[bool] = []
        try:
            f.add_many(items)
        except BatchInterruptedError as error:
            told = error.results
        except kind:
            pass  # no reply had arrived before
    assert told + f.add_many(items[len(told) :]) == [True] * len(items)


def test_a_signal_handler_raises_in_an_update(any_proxy: Proxy) -> None:
    """The error says what ended the call, and how many items are in; the call goes on with the rest."""
    f = CountingBloomFilter(any_proxy.client(), "seen", **SIZE)
    f.add("warm")
    items = [f"{i}" for i in range(2000)]
    source = iter(items)
    with interrupting(SoftTimeLimitExceeded) as fate:
        any_proxy.plan("add", passed, fate)
        with pytest.raises(BatchInterruptedError, match=r"^\d+ items were added, then: time is over") as met:
            f.update(source)
    f.update(met.value.rest)
    f.update(source)
    assert all(f.contains_many(items))


def test_a_signal_handler_raises_behind_the_last_answer(
    any_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers of a whole batch are left to the next call, also if a local cache has asked for them."""

    def interrupted(*_: object) -> Iterator[None]:
        raise SoftTimeLimitExceeded
        yield

    f = BloomFilter(any_client, "seen", **SIZE, local_cache=True)
    f.add("warm")
    with monkeypatch.context() as patch:
        patch.setattr(StoredFilter, "look_at_count", interrupted)
        with pytest.raises(SoftTimeLimitExceeded):
            f.add_many(["x", "y", "z"])
    assert f.add_many(["x", "y", "z"]) == [True] * 3


@pytest.mark.parametrize("kind", RAISED)
def test_a_signal_handler_raises_in_a_removal(any_proxy: Proxy, kind: type[BaseException]) -> None:
    """The item was removed once, and the retry is told so."""
    f = CountingBloomFilter(any_proxy.client(), "seen", **SIZE)
    f.add_many(["x", "warm"])
    f.remove("warm")
    with interrupting(kind) as fate:
        any_proxy.plan("remove", fate)
        with pytest.raises(BaseException):  # noqa: B017 - a client may turn it into another exception
            f.remove("x")
    assert [f.remove("x"), f.remove("x")] == [True, False]


@pytest.mark.parametrize("kind", RAISED)
def test_a_signal_handler_raises_in_a_claim(any_proxy: Proxy, kind: type[BaseException]) -> None:
    """The worker that retries holds the item, and its commit has the normal answer."""
    f = BloomFilter(any_proxy.client(), "seen", **SIZE)
    f.claim("warm").commit()
    with interrupting(kind) as fate:
        any_proxy.plan("claim", fate)
        with pytest.raises(BaseException):  # noqa: B017 - a client may turn it into another exception
            f.claim("x", lease=60)
        claim = f.claim("x", lease=60)
        assert claim.state == "claimed"
        any_proxy.plan("commit", fate)
        with suppress(BaseException):  # the client turns an OSError into its own error and retries
            claim.commit()
    claim.commit()
    assert f.claim("x").state == "done"


def test_an_unknown_error_in_the_place_of_a_reply(proxy: Proxy, bloom: Any) -> None:
    """An error that a proxy makes up proves nothing about the call."""
    f = bloom(proxy.client(), "seen", **SIZE)
    f.add("warm")
    proxy.plan("add", belied(UNKNOWN))
    with pytest.raises(Exception, match="upstream failure"):
        f.add("x")
    assert [f.add("x"), f.add("x")] == [True, False]


def test_an_unknown_error_in_a_batch(any_proxy: Proxy, bloom: Any) -> None:
    """The same holds for all items of the script with that reply."""
    f = bloom(any_proxy.client(), "seen", **SIZE)
    f.add("warm")
    any_proxy.plan("add", passed, belied(UNKNOWN))
    items = [f"{i}" for i in range(3000)]
    with pytest.raises(BatchInterruptedError) as caught:
        f.add_many(items)
    assert 0 < len(caught.value.results) < len(items)
    assert caught.value.results + f.add_many(caught.value.rest) == [True] * len(items)


def test_an_unknown_error_at_the_first_script(any_proxy: Proxy, bloom: Any) -> None:
    """The same holds if no reply came before."""
    f = bloom(any_proxy.client(), "seen", **SIZE)
    f.add("warm")
    any_proxy.plan("add", belied(UNKNOWN))
    with pytest.raises(Exception, match="upstream failure"):
        f.add_many(["a", "b"])
    assert f.add_many(["a", "b"]) == [True, True]


def test_an_unknown_error_of_a_removal(any_proxy: Proxy, bloom: Any) -> None:
    """The item was removed, and the retry is told so."""
    f = bloom(any_proxy.client(), "seen", kind="CountingBloomFilter", **SIZE)
    f.add_many(["x", "warm"])
    f.remove("warm")
    any_proxy.plan("remove", belied(UNKNOWN))
    with pytest.raises(Exception, match="upstream failure"):
        f.remove("x")
    assert [f.remove("x"), f.remove("x")] == [True, False]


def test_an_unknown_error_is_shared(any_proxy: Proxy) -> None:
    """Each task of a shared call gets its answer on retry."""

    async def main() -> None:
        async with any_proxy.asyncio_client() as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
            told = await shared(any_proxy, f, map(f.add, "abc"), belied(UNKNOWN))
            assert all(isinstance(each, Exception) for each in told)
            assert await f.add_many(["a", "b", "c"]) == [True] * 3

    asyncio.run(main())


class Faulty:
    """A client that executes a command, then raises its own error instead of returning the reply."""

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client
        self.raises: BaseException | None = None

    def execute_command(self, *command: Any, **options: Any) -> Any:
        reply = self._client.execute_command(*command, **options)
        error, self.raises = self.raises, None
        if error is not None:
            raise error
        return reply

    def pipeline(self, *, transaction: bool) -> Any:
        return self._client.pipeline(transaction=transaction)


@for_each("call", [lambda f: [f.add("x")], lambda f: f.add_many(["x"])])
def test_an_error_of_the_client_itself(any_client: redis.Redis, call: Callable[[Any], list[bool]]) -> None:
    """If a client fails after it has read the reply, the item is pending."""
    client = Faulty(any_client)
    f: Any = BloomFilter(cast("SyncClient", client), "seen", **SIZE)
    f.add("warm")
    client.raises = RuntimeError("a fault of the client")
    with pytest.raises(RuntimeError, match="a fault of the client"):
        call(f)
    assert call(f) == [True]


@pytest.mark.parametrize("fate", [lost, dropped])
def test_the_error_of_a_lost_reply_is_known(any_proxy: Proxy, bloom: Any, fate: Fate) -> None:
    """`except BloomError` catches the error of a lost connection."""
    f = bloom(any_proxy.client(), "seen", **SIZE)
    f.add("warm")
    any_proxy.plan("add", fate)
    with pytest.raises(BloomError):
        f.add("x")
    assert f.add("x")
