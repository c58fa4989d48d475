"""Claims that renew themselves, from a thread or a task, and functions that run once for an item."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BloomFilter, ClaimLostError, Skipped
from bloomredis.drivers import renewing
from tests.support.background import Child
from tests.support.proxy import passed, proxied, refused
from tests.support.servers import Server
from tests.support.values import for_each
from tests.support.waiting import PATIENCE, wait_until

SIZE: dict[str, Any] = {"capacity": 1000, "error_rate": 1e-6}
SHORT = 1_000
"""Milliseconds that are left of a lease: a renewal makes them thirty seconds again."""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renew claims for thirty seconds each ten milliseconds."""
    monkeypatch.setattr(renewing, "_PER_LEASE", 3000)
    monkeypatch.setattr(renewing, "_PER_LEASE_AFTER_A_FAILURE", 6000)


def make(client: Any) -> BloomFilter:
    return BloomFilter(client, "seen", **SIZE)


@asynccontextmanager
async def made(server: Server) -> AsyncIterator[bloomredis.asyncio.BloomFilter]:
    async with redis.asyncio.Redis(unix_socket_path=server.socket) as client:
        yield bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)


def claim_key(client: redis.Redis) -> Any:
    (key,) = client.keys("*claim*")
    return key


def shortened(client: redis.Redis) -> Callable[[], bool]:
    """Shorten the lease of the only claim, and return the condition that it has been renewed."""
    key = claim_key(client)
    client.pexpire(key, SHORT)
    return lambda: int(client.pttl(key)) > SHORT


async def until(condition: Callable[[], object]) -> None:
    """Let tasks run until a condition is true."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - it is polled, with a deadline
            await asyncio.sleep(0.005)


def calls_of(client: Any) -> int:
    """Return the number of scripts that a server has run."""
    calls: int = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    return calls


def waiting(client: redis.Redis) -> int:
    """Return the number of renewals that are to be made over a client."""
    return len(renewing._threads.of(client)._waiting)


def test_a_lease_is_renewed(any_client: redis.Redis) -> None:
    """Again and again, until the block ends; then nothing is sent any more."""
    f = make(any_client)
    with f.claim("a", renew=True) as claim:
        for _ in range(3):
            wait_until("it is renewed", shortened(any_client))
        assert 29 < claim.remaining <= 30
        assert not claim.lost
    assert f.contains("a")
    wait_until("the thread has dropped it", lambda: not waiting(any_client))
    calls = calls_of(any_client)
    with f.claim("b", renew=True):
        pass
    assert calls_of(any_client) - calls <= 4


def test_a_task_renews_a_lease(any_server: Server, any_client: redis.Redis) -> None:
    """The same in asyncio; the task has ended with the block."""

    async def main() -> None:
        async with made(any_server) as f:
            async with f.claim("a", renew=True) as claim:
                for _ in range(3):
                    await until(shortened(any_client))
                assert 29 < claim.remaining <= 30
            assert await f.contains("a")
            await until(lambda: len(asyncio.all_tasks()) == 1)

    asyncio.run(main())


def test_one_thread_renews_all_claims(any_client: redis.Redis) -> None:
    """Those over one client, of several filters, at different times; it has a name."""
    f, other = make(any_client), BloomFilter(any_client, "other", **SIZE)
    before = set(threading.enumerate())
    claims = [f.claim("a", renew=True), f.claim("b", 60, renew=True), other.claim("a", renew=True)]
    assert [each.name for each in set(threading.enumerate()) - before] == ["bloomredis-renewals"]
    for key in any_client.keys("*claim*"):
        any_client.pexpire(key, SHORT)
    wait_until(
        "all are renewed",
        lambda: all(int(any_client.pttl(key)) > SHORT for key in any_client.keys("*claim*")),
    )
    for claim in claims:
        claim.commit()


def test_a_loss_ends_the_block_with_an_error(
    any_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """The claim says so while the work goes on, and so does the log; nothing is committed."""
    f = make(any_client)

    def work() -> None:
        with f.claim("a", renew=True) as claim:
            any_client.delete(claim_key(any_client))
            wait_until("the loss is noticed", lambda: claim.lost)
            assert not claim

    with caplog.at_level(logging.WARNING, "bloomredis"), pytest.raises(ClaimLostError, match="'a' ran out"):
        work()
    wait_until("it is logged", lambda: "the claim on 'a' ran out" in caplog.text)
    assert not f.contains("a")


def test_a_loss_ends_the_block_of_a_task(any_server: Server, any_client: redis.Redis) -> None:
    """The same in asyncio, after a FLUSHALL."""

    async def main() -> None:
        async with made(any_server) as f, f.claim("a", renew=True) as claim:
            any_client.flushall()
            await until(lambda: claim.lost)

    with pytest.raises(ClaimLostError):
        asyncio.run(main())


def test_the_work_may_end_with_its_own_error(any_client: redis.Redis) -> None:
    """Then a loss is not told besides; nor one that the caller has met."""
    f = make(any_client)

    def fail() -> None:
        with f.claim("a", renew=True) as claim:
            any_client.delete(claim_key(any_client))
            wait_until("the loss is noticed", lambda: claim.lost)
            raise KeyError("a")

    with pytest.raises(KeyError):
        fail()
    with f.claim("b", renew=True) as claim:
        any_client.delete(claim_key(any_client))
        wait_until("the loss is noticed", lambda: claim.lost)
        with pytest.raises(ClaimLostError):
            claim.commit()


def test_a_failed_renewal_is_made_again(any_server: Server, any_client: redis.Redis) -> None:
    """However often the server refuses it."""
    with proxied(any_server.socket) as proxy:
        f = make(proxy.client())
        proxy.plan("extend", *[refused("LOADING it is loading")] * 3, passed)
        with f.claim("a", renew=True):
            wait_until("it is renewed", shortened(any_client))


def test_a_lease_that_nobody_renewed_is_over(any_client: redis.Redis) -> None:
    """This side says so without asking, as it cannot ask if the server is away."""
    claim = make(any_client).claim("a", 0.05)
    assert not claim.lost
    wait_until("it is over", lambda: claim.lost)
    assert claim.remaining == 0
    assert claim.state == "claimed"  # as no call has found it lost


def test_a_forgotten_claim_is_not_renewed(any_client: redis.Redis) -> None:
    """Its item is free when the lease runs out."""
    make(any_client).claim("a", renew=True)
    gc.collect()
    wait_until("the thread has dropped it", lambda: not waiting(any_client))


def test_claims_that_have_ended_are_not_kept(any_client: redis.Redis) -> None:
    """However long their leases: a hundred at most, or as many as are held."""
    f = make(any_client)
    with f.claim("held", renew=True, lease=86_400) as held:
        for number in range(500):
            with f.claim(f"{number}", renew=True, lease=86_400) as claim:
                assert claim
        assert 1 <= waiting(any_client) <= 100
        assert not held.lost


def test_nothing_of_it_survives_a_fork(any_server: Server) -> None:
    """A child has no thread and renews no claim, until it makes one of its own."""
    with any_server.client() as client:
        f = make(client)
        claim = f.claim("a", renew=True)

        def work() -> tuple[int, int, bool, int]:
            threads, before = threading.active_count(), waiting(client)
            with any_server.client() as own, f.with_client(own).claim("b", renew=True) as mine:
                wait_until("it is renewed", lambda: waiting(own) == 1)
                return threads, before, bool(mine), waiting(own)

        assert Child(work).result() == (1, 0, True, 1)
        claim.commit()


def test_remaining_says_when_to_come_again(bloom: Any, client: redis.Redis) -> None:
    """Of a busy item what is left of its holder's lease; 0 for what is done, given back or lost."""
    f = bloom(client, "seen", **SIZE)
    claims = f.claim_many(["a", "b"], 20)
    busy = f.claim_many(["b", "c", "a"])
    client.pexpire(claim_key_of(client, claims[0]), 5_000)
    again = f.claim("a")
    assert [each.state for each in busy] == ["busy", "claimed", "busy"]
    assert all(19 < each.remaining <= 20.001 for each in (busy[0], busy[2]))
    assert 29 < busy[1].remaining <= 30
    assert 4 < again.remaining <= 5.001
    f.release_many(claims[:1])
    f.commit_many(claims[1:])
    assert [each.remaining for each in (*claims, f.claim("b"))] == [0, 0, 0]


def claim_key_of(client: redis.Redis, claim: Any) -> Any:
    (key,) = (each for each in client.keys("*claim*") if client.get(each) == claim._held.value)
    return key


@for_each("renew", [1, None, "yes"])
def test_renew_is_a_bool(bloom: Any, renew: Any) -> None:
    """Before any I/O."""
    with pytest.raises(TypeError, match="renew must be True or False"):
        bloom(redis.Redis(port=1), "seen", **SIZE).claim("a", renew=renew)


# -- once


def test_a_function_runs_once_for_an_item(any_client: redis.Redis) -> None:
    """Its answer is its own; another call is skipped, and says why."""
    f = make(any_client)

    @f.once(key=lambda order, carrier: order)
    def ship(order: str, carrier: str) -> str:
        """Ship it."""
        return f"{order} by {carrier}"

    assert ship("o1", carrier="rail") == "o1 by rail"
    assert ship("o1", carrier="road") == Skipped("o1", "done", 0)
    held = f.claim("o2", 20)
    skipped: Any = ship("o2", "rail")
    assert (skipped.item, skipped.state) == ("o2", "busy")
    assert 19 < skipped.remaining <= 20.001
    held.release()
    assert ship("o2", "rail") == "o2 by rail"
    assert (ship.__name__, ship.__doc__) == ("ship", "Ship it.")


def test_a_function_that_fails_may_run_again(any_client: redis.Redis) -> None:
    """Its error passes, and the item is free."""
    f = make(any_client)
    failures = iter([KeyError("x")])

    @f.once()
    def work(item: str) -> str:
        for failure in failures:
            raise failure
        return item

    with pytest.raises(KeyError):
        work("x")
    assert work("x") == "x"


def test_a_function_is_held_while_it_runs(any_client: redis.Redis) -> None:
    """For longer than the lease; without renewing, the caller is told that it was too slow."""
    f = make(any_client)

    def outlast(_: str) -> None:
        wait_until("it is renewed", shortened(any_client))

    f.once()(outlast)("a")
    assert f.contains("a")
    slow = f.once(lease=0.01, renew=False)(
        lambda _: wait_until("it is over", lambda: not any_client.keys("*:claim:*"))
    )
    with pytest.raises(ClaimLostError):
        slow("b")


def test_a_coroutine_runs_once_for_an_item(any_server: Server) -> None:
    """Of many tasks that call it one runs it."""

    async def main() -> None:
        async with made(any_server) as f:
            ran: list[str] = []

            @f.once()
            async def work(item: str) -> str:
                ran.append(item)
                await asyncio.sleep(0)
                return item

            answers = await asyncio.gather(*(work("a") for _ in range(10)))
            assert ran == ["a"]
            assert answers.count("a") == 1
            assert {each.state for each in answers if isinstance(each, Skipped)} <= {"busy", "done"}

    asyncio.run(main())


def generator(item: str) -> Iterator[str]:
    yield item


async def coroutine(item: str) -> str:
    return item


async def async_generator(item: str) -> AsyncIterator[str]:
    yield item


HALVES: dict[str, Any] = {
    "sync": lambda: BloomFilter(redis.Redis(port=1), "seen", **SIZE),
    "asyncio": lambda: bloomredis.asyncio.BloomFilter(redis.asyncio.Redis(port=1), "seen", **SIZE),
}


@for_each(
    ("half", "function", "match"),
    [
        ("sync", coroutine, "bloomredis.asyncio"),
        ("asyncio", len, "use a filter of bloomredis for"),
        *((half, each, "not for generators") for half in HALVES for each in (generator, async_generator)),
        *((half, "a", "is called first") for half in HALVES),
    ],
)
def test_what_cannot_run_once_is_refused(half: str, function: Any, match: str) -> None:
    """When it is decorated."""
    with pytest.raises(TypeError, match=match):
        HALVES[half]().once()(function)


def test_a_call_without_an_item_is_refused(any_client: redis.Redis) -> None:
    """Without `key` the item is the first positional argument."""
    work: Any = make(any_client).once()(str)
    with pytest.raises(TypeError, match="first positional argument"):
        work(object="a")
