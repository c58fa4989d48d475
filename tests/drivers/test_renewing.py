"""Claims that a thread or task renews, and functions that run once for an item."""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import logging
import math
import signal
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BloomFilter, ClaimLostError, Skipped
from bloomredis.drivers import renewing
from bloomredis.operations.claims.state import ClaimState
from bloomredis.protocol import clock
from tests.support.background import Child, outcome, started
from tests.support.clock import Clock
from tests.support.holes import HOLES
from tests.support.lines import at_line
from tests.support.own_tasks import own_tasks_cancelled
from tests.support.proxy import passed, proxied, refused
from tests.support.servers import Server, running
from tests.support.values import for_each
from tests.support.waiting import PATIENCE, wait_until

SIZE: dict[str, Any] = {"capacity": 1000, "error_rate": 1e-6}
SHORT = 20_000
"""The milliseconds to which a lease is cut: a renewal makes them thirty seconds again."""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renew claims every ten milliseconds, to thirty seconds each."""
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
    """Shorten the lease of the only claim, and return a condition: it was renewed."""
    key = claim_key(client)
    client.pexpire(key, SHORT)
    return lambda: int(client.pttl(key)) > SHORT


async def until(condition: Callable[[], object]) -> None:
    """Run the event loop until a condition is true."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - polled with a deadline
            await asyncio.sleep(0.005)


def calls_of(client: Any) -> int:
    """Return the number of script calls that a server counts."""
    calls: int = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    return calls


def waiting(client: redis.Redis) -> int:
    """Return the number of renewals that are due over a client."""
    return len(renewing._threads.of(client)._schedule._waiting)


def test_a_lease_is_renewed(any_client: redis.Redis) -> None:
    """A lease is renewed until the block ends; then nothing more is sent."""
    f = make(any_client)
    with f.claim("a", renew=True) as claim:
        for _ in range(3):
            wait_until("it is renewed", shortened(any_client))
        assert 29 < claim.remaining <= 30
        assert not claim.lost
    assert f.contains("a")
    wait_until("the thread has dropped it", lambda: not waiting(any_client))
    calls = calls_of(any_client)
    with f.claim("b"):
        pass
    assert calls_of(any_client) - calls == 2


def test_a_task_renews_a_lease(any_server: Server, any_client: redis.Redis) -> None:
    """A task renews a lease in asyncio; the task has ended with the block."""

    async def main() -> None:
        async with made(any_server) as f:
            async with f.claim("a", renew=True) as claim:
                for _ in range(3):
                    await until(shortened(any_client))
                assert 29 < claim.remaining <= 30
            assert await f.contains("a")
            await until(lambda: len(asyncio.all_tasks()) == 1)

    asyncio.run(main())


def test_a_task_renews_all_claims_that_are_due(any_server: Server, any_client: redis.Redis) -> None:
    """Two hundred claims of one loop are renewed, and none is lost."""

    async def main() -> None:
        async with made(any_server) as f:
            claims = [await f.claim(str(i), renew=True) for i in range(200)]
            keys = any_client.keys("*claim*")
            for key in keys:
                any_client.pexpire(key, SHORT)
            await until(lambda: all(int(any_client.pttl(key)) > SHORT for key in keys))
            assert not any(claim.lost for claim in claims)

    asyncio.run(main())


@pytest.fixture
def stopped(any_server: Server) -> Iterator[Server]:
    """A second server, which a test may stop by a signal."""
    with running(any_server.binary) as server:
        yield server
        signalled(server, signal.SIGCONT)


def signalled(server: Server, number: signal.Signals) -> None:
    """Send a signal to a server."""
    assert server.process is not None
    server.process.send_signal(number)


def test_a_server_without_replies_delays_only_its_own_claims(
    any_client: redis.Redis, stopped: Server
) -> None:
    """Claims of filters on other servers are renewed."""
    filters = [make(any_client), make(stopped.client(socket_timeout=PATIENCE))]
    claims = [each.claim(i, renew=True) for each in filters for i in range(30)]
    signalled(stopped, signal.SIGSTOP)
    for _ in range(3):
        keys = any_client.keys("*claim*")
        for key in keys:
            any_client.pexpire(key, SHORT)
        wait_until("they are renewed", lambda: all(int(any_client.pttl(key)) > SHORT for key in keys))  # noqa: B023
    signalled(stopped, signal.SIGCONT)
    assert not any(claim.lost for claim in claims)


def test_a_server_without_replies_delays_only_its_own_claims_in_asyncio(
    any_server: Server, any_client: redis.Redis, stopped: Server
) -> None:
    """The same holds for filters in one event loop."""

    async def main() -> None:
        async with made(any_server) as f, made(stopped) as other:
            claims = [await each.claim(i, renew=True) for each in (f, other) for i in range(30)]
            signalled(stopped, signal.SIGSTOP)
            for _ in range(3):
                keys = any_client.keys("*claim*")
                for key in keys:
                    any_client.pexpire(key, SHORT)
                await until(lambda: all(int(any_client.pttl(key)) > SHORT for key in keys))  # noqa: B023
            signalled(stopped, signal.SIGCONT)
            assert not any(claim.lost for claim in claims)

    asyncio.run(main())


@for_each("kind", ["BloomFilter", "ShardedBloomFilter"])
def test_a_claim_that_no_thread_can_renew(
    any_server: Server, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next claim of the item returns it."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    f = getattr(bloomredis, kind)(any_server.client(), "seen", **SIZE)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start"):
            f.claim("a", renew=True)
    assert f.claim("a", renew=True).state == "claimed"


def test_renewals_that_are_due_soon_share_a_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal may be early by an eighth of its pause; those of another filter are another batch."""
    times = itertools.count(0, 0.00001)
    monkeypatch.setattr(clock, "now", lambda: next(times))
    schedule = renewing._Schedule()
    state = ClaimState("a", "claimed", b"", b"", lease=30_000)
    claims: list[set[int]] = [set() for _ in range(100)]  # in the place of claims
    first, second = (BloomFilter(redis.Redis(), name, **SIZE) for name in ("one", "another"))
    for i, claim in enumerate(claims):
        schedule.add(claim, state, first if i else second)
    assert schedule.take_due() == []
    monkeypatch.setattr(clock, "now", lambda: schedule.next_due)
    assert sorted(map(len, schedule.take_due())) == [1, 99]
    assert schedule.next_due == math.inf


@for_each("steps", [0, 1, 2])
def test_renewals_go_on_after_a_cancelled_one(
    any_server: Server, any_client: redis.Redis, steps: int
) -> None:
    """A program that cancels all tasks but its own keeps its claims, also before a task has begun."""

    async def main() -> None:
        async with made(any_server) as f, f.claim("a", renew=True) as claim:
            while len(asyncio.all_tasks()) == 1:  # noqa: ASYNC110 - nothing may come between
                await asyncio.sleep(0)
            for _ in range(steps):
                await asyncio.sleep(0)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            for _ in range(3):
                await until(shortened(any_client))
            assert claim

    asyncio.run(main())


def test_a_renewal_that_is_cancelled_before_it_begins_has_a_next(
    any_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the hole open the claim is never renewed again, so the test above would fail."""

    async def left(item: str) -> int:
        async with made(any_server) as f, f.claim(item, lease=36_000, renew=True):
            renewals = renewing._loops[asyncio.get_running_loop()]
            schedule = renewals._schedule
            with own_tasks_cancelled(0, code="") as cancelled:
                (first,) = schedule._waiting
                schedule._waiting[:] = [first._replace(due=0.0)]
                renewals._begin()
                await until(lambda: cancelled and cancelled[0].done())
                await asyncio.sleep(0)
            return len(schedule._waiting)

    assert asyncio.run(left("a")) == 1
    HOLES["renewals-end-in-tasks"](monkeypatch.setattr)
    assert asyncio.run(left("b")) == 0


@for_each(
    "where",
    [
        renewing.renew_in_thread,
        renewing._Threads.of,
        renewing._ThreadRenewals.after_fork,
        renewing._ThreadRenewals.add,
        renewing._Renewal.is_wanted.fget,  # type: ignore[attr-defined]  # a property
    ],
)
@for_each("earlier", [0, 2])
def test_a_claim_while_another_claim_begins(
    any_client: redis.Redis, where: Callable[..., Any], earlier: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finaliser or a signal handler may claim anywhere, in the same thread: both claims are renewed."""
    monkeypatch.setattr(renewing, "_FEW", 2)  # a third claim removes the renewals of ended claims
    f = make(any_client)
    for number in range(40):
        monkeypatch.setattr(renewing, "_threads", renewing._Threads())
        claims = [f.claim(f"{number}:{i}", lease=36_000, renew=True) for i in range(earlier)]

        def claim_twice(number: int = number, claims: list[Any] = claims) -> int:
            with at_line(
                where, number, lambda: claims.append(f.claim("inner", lease=36_000, renew=True))
            ) as lines:
                claims.append(f.claim(f"{number}", lease=36_000, renew=True))
            return len(lines)

        lines = outcome(started(claim_twice))
        assert isinstance(lines, int), lines
        assert waiting(any_client) == len(claims)
        any_client.delete(*any_client.keys("*claim*"))
        if lines <= number:
            return
    pytest.fail("it has more lines than were tried")


def test_claims_of_a_closed_loop_are_not_kept(any_server: Server) -> None:
    """A loop's claims and their filters are kept until it is closed and another loop has a claim."""

    async def main(item: str) -> weakref.ref[object]:
        async with made(any_server) as f:
            assert await f.claim(item, renew=True)
            return weakref.ref(f)

    first, second = (asyncio.run(main(item)) for item in "ab")
    gc.collect()
    assert first() is None
    assert second() is not None


def test_one_thread_renews_all_claims(any_client: redis.Redis) -> None:
    """One named thread renews the claims of several filters over one client, at different times."""
    f, other = make(any_client), BloomFilter(any_client, "other", **SIZE)
    before = set(threading.enumerate())
    claims = [f.claim("a", renew=True), f.claim("b", lease=60, renew=True), other.claim("a", renew=True)]
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
    """The claim and the log report the loss during the work; nothing is committed."""
    f = make(any_client)

    def work() -> None:
        with f.claim("a", renew=True) as claim:
            any_client.delete(claim_key(any_client))
            wait_until("the loss is noticed", lambda: claim.lost)
            assert not claim

    with caplog.at_level(logging.WARNING, "bloomredis"), pytest.raises(ClaimLostError, match="'a' is over"):
        work()
    wait_until("it is logged", lambda: "the claim on 'a' is over" in caplog.text)
    assert not f.contains("a")


def test_a_loss_ends_the_block_of_a_task(any_server: Server, any_client: redis.Redis) -> None:
    """In asyncio, a FLUSHALL ends the block of a task with an error too."""

    async def main() -> None:
        async with made(any_server) as f, f.claim("a", renew=True) as claim:
            any_client.flushall()
            await until(lambda: claim.lost)

    with pytest.raises(ClaimLostError):
        asyncio.run(main())


def test_the_work_may_end_with_its_own_error(any_client: redis.Redis) -> None:
    """A loss does not replace the work's own error, and a loss already raised is not raised again."""
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
    """A renewal is retried, however often the server refuses it."""
    with proxied(any_server.socket) as proxy:
        f = make(proxy.client())
        proxy.plan("extend", *[refused("LOADING it is loading")] * 3, passed)
        with f.claim("a", renew=True):
            wait_until("it is renewed", shortened(any_client))


def test_a_lease_that_nobody_renewed_is_over(any_client: redis.Redis, clock: Clock) -> None:
    """The client knows without asking that a lease is over, as it cannot ask a server that is away."""
    claim = make(any_client).claim("a", lease=60)
    assert not claim.lost
    clock.advance(60)
    assert (claim.lost, claim.remaining) == (True, 0)
    assert claim.state == "claimed"  # no call has found it lost yet


def test_a_forgotten_claim_is_not_renewed(any_client: redis.Redis) -> None:
    """Its lease is left to run out, and the item becomes free."""
    make(any_client).claim("a", renew=True)
    gc.collect()
    wait_until("the thread has dropped it", lambda: not waiting(any_client))


def test_claims_that_have_ended_are_not_kept(any_client: redis.Redis) -> None:
    """At most a hundred ended claims are kept, or as many as are active, however long their leases."""
    f = make(any_client)
    with f.claim("held", renew=True, lease=86_400) as held:
        for number in range(500):
            with f.claim(f"{number}", renew=True, lease=86_400) as claim:
                assert claim
        assert 1 <= waiting(any_client) <= 100
        assert not held.lost


def test_nothing_of_it_survives_a_fork(any_server: Server) -> None:
    """A forked child has no renewing thread and renews no claim, until it makes its own."""
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
    """For a busy item it is the rest of its holder's lease; it is 0 for done, released or lost items."""
    f = bloom(client, "seen", **SIZE)
    claims = f.claim_many(["a", "b"], lease=20)
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
    (key,) = (each for each in client.keys("*claim*") if client.get(each) == claim._state.value)
    return key


@for_each("renew", [1, None, "yes"])
def test_renew_is_a_bool(bloom: Any, renew: Any) -> None:
    """Another type is refused before any I/O."""
    with pytest.raises(TypeError, match="renew must be True or False"):
        bloom(redis.Redis(port=1), "seen", **SIZE).claim("a", renew=renew)


# -- once


def test_a_function_runs_once_for_an_item(any_client: redis.Redis) -> None:
    """The first call returns the function's result; another call is skipped, and says why."""
    f = make(any_client)

    @f.once("ship", key=lambda order, carrier: order)
    def ship(order: str, carrier: str) -> str:
        """Ship it."""
        return f"{order} by {carrier}"

    assert ship("o1", carrier="rail") == "o1 by rail"
    assert ship("o1", carrier="road") == Skipped("o1", "done", 0)
    held = f.claim(ship.item("o2", "rail"), lease=20)
    skipped: Any = ship("o2", "rail")
    assert (skipped.item, skipped.state) == ("o2", "busy")
    assert 19 < skipped.remaining <= 20.001
    held.release()
    assert ship("o2", "rail") == "o2 by rail"
    assert (ship.__name__, ship.__doc__) == ("ship", "Ship it.")


def test_a_function_that_fails_may_run_again(any_client: redis.Redis) -> None:
    """Its error reaches the caller, and the item is free."""
    f = make(any_client)
    failures = iter([KeyError("x")])

    @f.once("work")
    def work(item: str) -> str:
        for failure in failures:
            raise failure
        return item

    with pytest.raises(KeyError):
        work("x")
    assert work("x") == "x"


def test_a_function_is_held_while_it_runs(any_client: redis.Redis) -> None:
    """Renewing holds the item for longer than the lease; without it, the caller gets an error."""
    f = make(any_client)

    def outlast(_: str) -> None:
        wait_until("it is renewed", shortened(any_client))

    f.once(None)(outlast)("a")
    assert f.contains("a")
    slow = f.once(None, lease=0.01, renew=False)(
        lambda _: wait_until("it is over", lambda: not any_client.keys("*:claim:*"))
    )
    with pytest.raises(ClaimLostError):
        slow("b")


def test_a_coroutine_runs_once_for_an_item(any_server: Server) -> None:
    """Of many tasks that call it one runs the coroutine."""

    async def main() -> None:
        async with made(any_server) as f:
            ran: list[str] = []

            @f.once("work")
            async def work(item: str) -> str:
                ran.append(item)
                await asyncio.sleep(0)
                return item

            answers = await asyncio.gather(*(work("a") for _ in range(10)))
            assert ran == ["a"]
            assert answers.count("a") == 1
            assert {each.state for each in answers if isinstance(each, Skipped)} <= {"busy", "done"}

    asyncio.run(main())


def test_on_busy_decides_about_a_busy_item(any_client: redis.Redis) -> None:
    """It gets the item and the seconds left; its result or exception becomes the call's."""
    f = make(any_client)
    given: list[tuple[str, float]] = []

    def again(item: str, remaining: float) -> str:
        given.append((item, remaining))
        if len(given) > 1:
            raise TimeoutError(item)
        return "later"

    work = f.once(None, on_busy=again)(str.upper)
    held = f.claim("a", lease=20)
    assert work("a") == "later"
    with pytest.raises(TimeoutError):
        work("a")
    ((item, remaining), _) = given
    assert (item, held.state) == ("a", "claimed")
    assert 19 < remaining <= 20.001
    held.commit()
    assert work("a") == Skipped("a", "done", 0)
    assert work("b") == "B"
    assert len(given) == 2


@pytest.mark.parametrize("is_coroutine", [True, False])
def test_on_busy_of_asyncio_may_be_awaited(any_server: Server, *, is_coroutine: bool) -> None:
    """The callable may be a coroutine function or a plain function."""

    async def later(item: str, remaining: float) -> str:
        return f"{item} in {remaining:.0f} s"

    async def main() -> None:
        async with made(any_server) as f:
            on_busy: Any = later if is_coroutine else lambda item, left: f"{item} in {left:.0f} s"
            work: Any = f.once(None, on_busy=on_busy)(coroutine)  # type: ignore[no-untyped-call]  # typed as Any
            held = await f.claim("a", lease=20)
            assert await work("a") == "a in 20 s"
            await held.release()
            assert await work("a") == "a"

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
        *((half, "a", "is none") for half in HALVES),
    ],
)
def test_what_cannot_run_once_is_refused(half: str, function: Any, match: str) -> None:
    """It is refused when it is decorated."""
    with pytest.raises(TypeError, match=match):
        HALVES[half]().once("work")(function)


@for_each("half", HALVES)
def test_on_busy_is_a_function(half: str) -> None:
    """Anything but a function, such as an exception, is refused when the decorator is made."""
    with pytest.raises(TypeError, match="on_busy must be a function of the item"):
        HALVES[half]().once("work", on_busy=TimeoutError("busy"))


FIRST: dict[str, tuple[Callable[..., Any], list[tuple[tuple[Any, ...], dict[str, Any]]]]] = {
    "a parameter": (
        lambda order, carrier="rail": order,
        [(("7",), {}), (("7", "road"), {}), ((), {"order": "7"}), ((), {"carrier": "road", "order": "7"})],
    ),
    "a default": (lambda order="7": order, [((), {}), (("7",), {}), ((), {"order": "7"})]),
    "a keyword": (lambda *, order: order, [((), {"order": "7"})]),
}
"""Functions, and calls of each that have the same first argument."""


@for_each("first", FIRST)
def test_the_item_is_the_first_argument(first: str, any_client: redis.Redis) -> None:
    """However it is given."""
    function, calls = FIRST[first]
    seen = make(any_client)
    seen.add("7")
    for args, kwargs in calls:
        assert seen.once(None)(function)(*args, **kwargs) == Skipped("7", "done", 0)


@for_each("first", FIRST)
def test_the_item_is_the_first_argument_of_a_coroutine_function(first: str, any_server: Server) -> None:
    """However it is given."""
    function, calls = FIRST[first]

    @functools.wraps(function)
    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    async def run() -> list[Any]:
        async with made(any_server) as seen:
            await seen.add("7")
            return [await seen.once(None)(coroutine)(*args, **kwargs) for args, kwargs in calls]

    assert asyncio.run(run()) == [Skipped("7", "done", 0)] * len(calls)


@for_each("half", HALVES)
def test_a_function_without_arguments_has_no_item(half: str) -> None:
    """Without `key`, a call of it is refused before anything is sent."""

    async def nothing() -> None: ...

    function: Any = HALVES[half]().once("work")(nothing if half == "asyncio" else lambda: None)
    with pytest.raises(TypeError, match="the first argument as the item"):
        asyncio.run(function()) if half == "asyncio" else function()
