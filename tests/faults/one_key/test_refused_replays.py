"""A refusal proves nothing about an earlier attempt: the item is pending, and its answer is kept."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import bloomredis.asyncio
from bloomredis import (
    BatchInterruptedError,
    BloomFilter,
    OutcomeUnknownError,
    ServerRefusedError,
)
from bloomredis.errors import RefusedOutcomeUnknownError
from tests.support.background import started
from tests.support.losing import LosingProxy, losing
from tests.support.proxy import Proxy, after, dropped, lost, passed, refused
from tests.support.servers import Server
from tests.support.sharing import shared
from tests.support.sizes import sized
from tests.support.waiting import wait_until
from tests.support.wrapping import wrapped

pytestmark = pytest.mark.every_server

SIZE: dict[str, Any] = {"capacity": 50_000, "error_rate": 1e-9}

DOUBTFUL = {
    "READONLY": "READONLY You can't write against a read only replica.",
    "NOREPLICAS": "NOREPLICAS Not enough good replicas to write.",
    "MISCONF": "MISCONF Errors writing to the AOF file: No space left on device",
    "NOPERM": "NOPERM this user has no permissions to run the 'set' command",
    "NOAUTH": "NOAUTH Authentication required.",
    "LOADING": "LOADING the server is loading the dataset in memory",
    "MASTERDOWN": "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "BUSY": "BUSY the server is busy running a script.",
    "OOM": "OOM command not allowed when used memory > 'maxmemory'.",
}
"""Refusals after which an earlier attempt may have been executed, or still arrive."""

REFUSALS = DOUBTFUL | {"CROSSSLOT": "CROSSSLOT Keys in request don't hash to the same slot"}


@pytest.mark.parametrize("first", [lost, dropped])
@pytest.mark.parametrize("word", DOUBTFUL)
def test_a_refused_replay_is_pending(any_proxy: Proxy, bloom: Any, word: str, first: Any) -> None:
    """The error has the server's text and a token; a retry on the object gets the answer once."""
    f = bloom(any_proxy.client(retries=1), "seen", **SIZE)
    f.add("warm")
    any_proxy.plan("add", first, *[refused(DOUBTFUL[word])] * 3)
    with pytest.raises(RefusedOutcomeUnknownError) as caught:
        f.add("x")
    assert isinstance(caught.value, ServerRefusedError)
    assert isinstance(caught.value, OutcomeUnknownError)
    assert caught.value.word == word
    any_proxy.calm()
    assert [f.add("x"), f.add("x")] == [True, False]


@pytest.mark.parametrize("first", [lost, dropped])
def test_a_refused_replay_has_a_token(proxy: Proxy, server: Server, bloom: Any, first: Any) -> None:
    """Another object gets the answer with the token."""
    f = bloom(proxy.client(retries=1), "seen", **SIZE)
    f.add("warm")
    proxy.plan("add", first, refused(DOUBTFUL["READONLY"]))
    with pytest.raises(RefusedOutcomeUnknownError) as caught:
        f.add("x")
    with server.client() as client:
        assert bloom(client, "seen", **SIZE).add("x", token=caught.value.token)
        assert not bloom(client, "seen", **SIZE).add("x")


@pytest.mark.parametrize("word", REFUSALS)
def test_a_refused_first_sending_is_not_pending(any_proxy: Proxy, bloom: Any, word: str) -> None:
    """Over a connection of the library the refused attempt is known to be the first: there is no token."""
    f = bloom(any_proxy.client(), "seen", **SIZE)
    f.add("warm")
    any_proxy.plan("add", *[refused(REFUSALS[word])] * 3)
    with pytest.raises(ServerRefusedError) as caught:
        f.add("x")
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert caught.value.word == word
    assert "before" not in str(caught.value)
    any_proxy.calm()
    assert [f.add("x"), f.add("x")] == [True, False]


def test_a_refusal_that_the_client_met_is_pending(any_proxy: Proxy, bloom: Any) -> None:
    """A client with its own retries does not say which attempt was refused."""
    f = bloom(wrapped(any_proxy.client()), "seen", **SIZE)
    f.add("warm")
    any_proxy.plan("add", *[refused(DOUBTFUL["NOREPLICAS"])] * 3)
    with pytest.raises(RefusedOutcomeUnknownError, match="may have been executed before") as caught:
        f.add("x")
    assert caught.value.token is not None
    any_proxy.calm()
    assert [f.add("x"), f.add("x")] == [True, False]


def test_keys_in_two_slots_leave_nothing_pending(any_proxy: Proxy, bloom: Any) -> None:
    """No node serves both slots, so no attempt was executed, even one that the client made."""
    f = bloom(wrapped(any_proxy.client()), "seen", **SIZE)
    f.add("warm")
    any_proxy.plan("add", *[refused(REFUSALS["CROSSSLOT"])] * 3)
    with pytest.raises(ServerRefusedError) as caught:
        f.add("x")
    assert not isinstance(caught.value, OutcomeUnknownError)
    any_proxy.calm()
    assert f.add("x")


@contextmanager
def _read_only(server: Server) -> Iterator[Callable[[], object]]:
    with server.client() as client:
        yield lambda: client.execute_command("REPLICAOF", "127.0.0.1", "1")
        client.execute_command("REPLICAOF", "NO", "ONE")


@contextmanager
def _without_quorum(server: Server) -> Iterator[Callable[[], object]]:
    with server.client() as client:
        yield lambda: client.config_set("min-replicas-to-write", 1)
        client.config_set("min-replicas-to-write", 0)


@contextmanager
def _without_disk(server: Server) -> Iterator[Callable[[], object]]:
    """Put a directory in place of the file, so that every save fails."""
    file = server.directory / "dump.rdb"

    def fail() -> None:
        file.unlink(missing_ok=True)
        file.mkdir()
        client.config_set("save", "3600 1")
        client.bgsave()
        wait_until("a save has failed", lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")

    with server.client() as client:
        yield fail
        client.config_set("save", "")
        with suppress(FileNotFoundError):
            file.rmdir()


@contextmanager
def _without_rights(server: Server) -> Iterator[Callable[[], object]]:
    with server.client() as client:
        yield lambda: client.execute_command("ACL", "SETUSER", "worker", "-@write")
        client.execute_command("ACL", "SETUSER", "worker", "+@all")


BROKEN = {
    "READONLY": _read_only,
    "NOREPLICAS": _without_quorum,
    "MISCONF": _without_disk,
    "NOPERM": _without_rights,
}


def _worker(server: Server, proxy: Proxy) -> Any:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">pw", "~*", "+@all")
    return proxy.client(retries=1, username="worker", password="pw")  # noqa: S106 - a test server's password


@pytest.mark.parametrize("word", BROKEN)
def test_an_executed_call_is_answered_by_a_server_that_refuses_writes(
    server: Server, proxy: Proxy, word: str
) -> None:
    """The retry finds the receipt, and needs no write that could be refused."""
    f = BloomFilter(_worker(server, proxy), "seen", **SIZE)
    f.add("warm")
    with BROKEN[word](server) as breaks:
        proxy.plan("add", lost, after(breaks, passed))
        assert f.add("x")
    assert not f.add("x")


@pytest.mark.parametrize("word", BROKEN)
def test_a_call_that_was_not_executed_is_pending(server: Server, proxy: Proxy, word: str) -> None:
    """The server refuses it with its own text; once the server works again, the item is new."""
    f = BloomFilter(_worker(server, proxy), "seen", **SIZE)
    f.add("warm")
    with BROKEN[word](server) as breaks:
        proxy.plan("add", dropped, after(breaks, passed))
        with pytest.raises(RefusedOutcomeUnknownError) as caught:
            f.add("x")
        assert caught.value.word == word
    assert [f.add("x"), f.add("x")] == [True, False]


@pytest.mark.parametrize("first", [lost, dropped])
@pytest.mark.parametrize("script", [1, 3])
def test_a_refused_batch_loses_nothing(any_proxy: Proxy, bloom: Any, first: Any, script: int) -> None:
    """Whichever script is refused, executed before or not, the rest of the batch is new on retry."""
    f = bloom(any_proxy.client(retries=1), "seen", **SIZE)
    f.add("warm")
    items = [f"{i}" for i in range(3000)]
    any_proxy.plan("add", *[passed] * (script - 1), first, refused(DOUBTFUL["READONLY"]))
    with pytest.raises(BatchInterruptedError) as caught:
        f.add_many(items)
    assert isinstance(caught.value.__cause__, RefusedOutcomeUnknownError)
    assert caught.value.results + f.add_many(caught.value.rest) == [True] * len(items)
    assert f.info().count == len(items) + 1


@pytest.mark.parametrize("verb", ["add", "remove"])
def test_a_refused_call_counts_once(any_proxy: Proxy, bloom: Any, verb: str) -> None:
    """In a filter that counts, an add or a removal takes effect once."""
    f = bloom(any_proxy.client(retries=1), "seen", kind="CountingBloomFilter", **SIZE)
    f.add_many(["warm", "x", "x"])
    f.remove("warm")
    any_proxy.plan(verb, lost, refused(DOUBTFUL["READONLY"]))
    with pytest.raises(RefusedOutcomeUnknownError) as caught:
        getattr(f, verb)("x")
    assert caught.value.token is not None
    assert getattr(f, verb)("x") == (verb == "remove")
    assert f.info().count == (3 if verb == "add" else 1)


def test_a_refused_claim_is_held(any_proxy: Proxy) -> None:
    """The retry uses the first attempt's owner and gets the claim; a commit is retried automatically."""
    f = BloomFilter(any_proxy.client(retries=1), "seen", **SIZE)
    f.claim("warm").commit()
    any_proxy.plan("claim", lost, refused(DOUBTFUL["NOREPLICAS"]))
    with pytest.raises(ServerRefusedError):
        f.claim("x", lease=60)
    claim = f.claim("x", lease=60)
    assert claim.state == "claimed"
    any_proxy.plan("commit", lost, refused(DOUBTFUL["NOREPLICAS"]))
    claim.commit()
    assert f.claim("x").state == "done"
    assert "x" in f


def test_refused_tasks_have_tokens_of_their_own(any_proxy: Proxy) -> None:
    """Tasks of a shared call, executed and then refused, each get the answer for their own item."""

    async def main() -> None:
        async with any_proxy.asyncio_client(retries=1) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
            fates = lost, refused(DOUBTFUL["READONLY"])
            errors = await shared(any_proxy, f, map(f.add, "abc"), *fates)
            assert [type(error) for error in errors] == [RefusedOutcomeUnknownError] * 3
            for item, error in zip("abc", errors, strict=True):
                assert await f.add(item, token=error.token)

    asyncio.run(main())


def _until_answered(f: BloomFilter, item: str, *, with_token: bool) -> bool:
    token = None
    while True:
        try:
            return f.add(item, token=token)
        except OutcomeUnknownError as error:
            token = error.token if with_token else None
        except ServerRefusedError:  # the first sending was refused
            assert token is None


def _one_by_one(proxy: Proxy, items: Sequence[str]) -> list[bool]:
    f = BloomFilter(proxy.client(retries=1), "seen", **SIZE)
    return [_until_answered(f, item, with_token=i % 2 == 0) for i, item in enumerate(items)]


def _in_batches(proxy: Proxy, items: Sequence[str]) -> list[bool]:
    f = BloomFilter(proxy.client(retries=1), "seen", **SIZE)
    told: list[bool] = []
    while len(told) < len(items):
        batch = items[len(told) : len(told) // 100 * 100 + 100]
        try:
            told += f.add_many(batch)
        except BatchInterruptedError as error:
            told += error.results
        except ServerRefusedError:
            continue
    return told


def _in_tasks(proxy: Proxy, items: Sequence[str]) -> list[bool]:
    async def until_answered(f: Any, item: str, *, with_token: bool) -> bool:
        token = None
        while True:
            try:
                return bool(await f.add(item, token=token))
            except OutcomeUnknownError as error:
                token = error.token if with_token else None
            except ServerRefusedError:
                assert token is None

    async def work(f: Any, own: Sequence[str]) -> list[bool]:
        return [await until_answered(f, item, with_token=i % 2 == 0) for i, item in enumerate(own)]

    async def main() -> list[bool]:
        async with proxy.asyncio_client(retries=1) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
            told = await asyncio.gather(*(work(f, items[task::32]) for task in range(32)))
            return [answer for answers in told for answer in answers]

    return asyncio.run(main())


@contextmanager
def _refusing(server: Server, proxy: LosingProxy) -> Iterator[list[int]]:
    """Lose one reply in fifty, after which the server often refuses; yield the number of refusals."""
    stop, refusals = threading.Event(), [0]

    def between(exchange: Any) -> bool:
        if exchange.verb == "add" and proxy.lost % 3 == 1:
            proxy.lost += 1
            refusals[0] += 1
            return refused(DOUBTFUL["READONLY"])(exchange)
        return proxy.lose_some(exchange)

    def toggle() -> None:
        with server.client() as client:
            while not stop.wait(0.01):
                for least in (1, 0):
                    client.config_set("min-replicas-to-write", least)

    proxy.fate, proxy.lost = between, 1  # the first call is refused
    toggling = started(toggle)
    try:
        yield refusals
    finally:
        stop.set()
        toggling.result(10)


@pytest.mark.parametrize("way", [_one_by_one, _in_batches, _in_tasks])
@sized("count", make_test=1000, make_test_all=20_000)
def test_lost_replies_of_a_refusing_server(
    any_server: Server, count: int, way: Callable[[Proxy, Sequence[str]], list[bool]]
) -> None:
    """Every item is new exactly once, with tokens and without."""
    items = [f"{i}" for i in range(count)]
    with any_server.client() as client, losing(any_server.socket, share=0.02) as proxy:
        BloomFilter(client, "seen", **SIZE).add("warm")
        with _refusing(any_server, proxy) as refusals:
            told = way(proxy, items)
        assert refusals[0] > 0
        assert sum(told) == count
        assert BloomFilter.open(client, "seen").info().count == count + 1
