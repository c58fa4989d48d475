"""Claims that a thread or task renews, and functions that run once for an item."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import math
import os
import re
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BloomFilter, ClaimLostError, Skipped
from bloomredis.drivers import renewing
from bloomredis.operations.claims.state import ClaimState
from tests.drivers.test_forks_in_c import fork as fork_in_c
from tests.support.background import Child, outcome, started
from tests.support.clock import Clock, patched
from tests.support.holes import HOLES
from tests.support.keys import claim_key
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


def only_claim(client: redis.Redis) -> Any:
    (key,) = client.keys("*claim*")
    return key


def shortened(client: redis.Redis) -> Callable[[], bool]:
    """Shorten the lease of the only claim, and return a condition: it was renewed."""
    key = only_claim(client)
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


def test_a_lease_is_renewed(any_client: redis.Redis) -> None:
    """A lease is renewed until the block ends; then nothing more is sent."""
    f = make(any_client)
    with f.claim("a") as claim:
        for _ in range(3):
            wait_until("it is renewed", shortened(any_client))
        assert 29 < claim.remaining <= 30
        assert not claim.lost
    assert f.contains("a")
    calls = calls_of(any_client)
    with f.claim("b"):
        pass
    assert calls_of(any_client) - calls == 2


def test_a_task_renews_a_lease(any_server: Server, any_client: redis.Redis) -> None:
    """A task renews a lease in asyncio; the task has ended with the block."""

    async def main() -> None:
        async with made(any_server) as f:
            async with f.claim("a") as claim:
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
            claims = [await f.claim(str(i)) for i in range(200)]
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
    claims = [each.claim(i) for each in filters for i in range(30)]
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
            claims = [await each.claim(i) for each in (f, other) for i in range(30)]
            signalled(stopped, signal.SIGSTOP)
            for _ in range(3):
                keys = any_client.keys("*claim*")
                for key in keys:
                    any_client.pexpire(key, SHORT)
                await until(lambda: all(int(any_client.pttl(key)) > SHORT for key in keys))  # noqa: B023
            signalled(stopped, signal.SIGCONT)
            assert not any(claim.lost for claim in claims)

    asyncio.run(main())


def refuse(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_claim_that_no_thread_can_renew(
    any_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so, and the claim ends with its lease; the next claim is renewed again."""
    f = make(any_client)
    monkeypatch.setattr(renewing, "_thread", renewing._ThreadTimer())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert f.claim("a").state == "claimed"
    assert "not renewed and end with their leases: can't start new thread" in caplog.text
    any_client.delete(only_claim(any_client))
    with f.claim("b"):
        wait_until("it is renewed", shortened(any_client))


def test_renewals_when_no_more_threads_can_be_started(
    any_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer's thread makes them itself."""
    monkeypatch.setattr(renewing, "_thread", renewing._ThreadTimer())
    with make(any_client).claim("a"):
        monkeypatch.setattr(threading.Thread, "start", refuse)
        wait_until("it is renewed", shortened(any_client))


@for_each("steps", [0, 1, 2])
def test_renewals_go_on_after_a_cancelled_one(
    any_server: Server, any_client: redis.Redis, steps: int
) -> None:
    """A program that cancels all tasks but its own keeps its claims, also before a task has begun."""

    async def main() -> None:
        async with made(any_server) as f, f.claim("a") as claim:
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

    async def has_next(item: str) -> bool:
        async with made(any_server) as f, f.claim(item):
            with own_tasks_cancelled(0, code="") as cancelled:
                await until(lambda: cancelled and cancelled[0].done())
                timer = renewing._loops[asyncio.get_running_loop()]  # no event tells of what never happens
                for _ in range(2):  # for a turn, a task has ended and the next renewal is not added
                    await asyncio.sleep(0)
                    if timer._ticks or not all(task.done() for task in timer._tasks):
                        return True
                return False

    assert asyncio.run(has_next("a"))
    HOLES["renewals-end-in-tasks"](monkeypatch.setattr)
    assert not asyncio.run(has_next("b"))


@for_each(
    "where",
    [
        renewing.renew_in_thread,
        renewing._Timer.add,
        renewing._ThreadTimer._wake,  # the lines at which the other claim comes
    ],
)
@for_each("earlier", [0, 2])
def test_a_claim_while_another_claim_begins(
    any_client: redis.Redis, where: Callable[..., Any], earlier: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finaliser or a signal handler may claim anywhere, in the same thread: both claims are renewed."""
    monkeypatch.setattr(renewing, "_MANY", 2)  # a third claim wakes the timer, too
    f = make(any_client)
    for number in range(40):
        claims = list[Any]()

        def claim_twice(number: int = number, claims: list[Any] = claims) -> int:
            monkeypatch.setattr(renewing, "_thread", renewing._ThreadTimer())
            claims += [f.claim(f"{number}:{i}") for i in range(earlier)]
            with at_line(where, number, lambda: claims.append(f.claim("inner"))) as lines:
                claims.append(f.claim(f"{number}"))
            return len(lines)

        lines = outcome(started(claim_twice))
        assert isinstance(lines, int), lines
        keys = any_client.keys("*claim*")
        assert len(keys) == len(claims)
        for key in keys:
            any_client.pexpire(key, SHORT)
        wait_until("all are renewed", lambda: all(int(any_client.pttl(key)) > SHORT for key in keys))  # noqa: B023
        for claim in claims:
            claim.release()
        any_client.delete(*keys)
        if lines <= number:
            return
    pytest.fail("it has more lines than were tried")


def test_a_claim_and_its_filter_are_not_kept(any_server: Server, any_client: redis.Redis) -> None:
    """They go with the caller's objects, in an event loop that is closed or goes on, and without one."""

    async def main(item: str) -> list[weakref.ref[Any]]:
        async with made(any_server) as f:
            claim = await f.claim(item, lease=86_400)
            refs: list[weakref.ref[Any]] = [weakref.ref(f), weakref.ref(claim)]
            del claim
        del f
        gc.collect()
        assert [ref() for ref in refs] == [None, None]
        return refs

    assert [ref() for ref in asyncio.run(main("a"))] == [None, None]
    f = make(any_client)
    claim = f.claim("b", lease=86_400)
    refs: list[weakref.ref[Any]] = [weakref.ref(f), weakref.ref(claim)]
    del f, claim
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def timers() -> list[threading.Thread]:
    """Return the threads that wait until claims are due."""
    return [each for each in threading.enumerate() if each.name == "bloomredis-renewals"]


def test_one_thread_waits_for_all_claims(
    any_server: Server, any_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one timer for all clients, and a claim with a shorter lease wakes it."""
    before = timers()
    monkeypatch.setattr(renewing, "_thread", renewing._ThreadTimer())
    with any_server.client() as client:
        filters = make(any_client), make(client), BloomFilter(any_client, "other", **SIZE)
        claims = [(f.name, f.claim(f"of {i}", lease=86_400)) for i, f in enumerate(filters)]
        claims += [
            (f.name, f.claim(f"{lease}", lease=lease)) for f in filters[1:] for lease in (3600, 60, 30)
        ]
        assert len(timers()) == len(before) + 1
        for name, claim in claims:
            key = claim_key(name, claim.item)
            any_client.pexpire(key, SHORT)
            if claim.remaining < 3600:
                wait_until("it is renewed", lambda: int(any_client.pttl(key)) > SHORT)  # noqa: B023 - at once
        for _, claim in claims:
            claim.commit()


def test_a_claim_is_renewed_for_a_day(
    any_client: redis.Redis, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has a line after an hour, and one at the end."""
    f = make(any_client)

    def told() -> list[str]:  # of these two; claims of other tests may be left until the next collection
        return sorted(each for each in caplog.messages if each.startswith(("'a' ", "'other' ")))

    with f.claim("other", renew=200_000) as other, f.claim("a") as claim:
        key = claim_key("seen", claim.item)
        clock.advance(3599)
        wait_until("it is renewed", lambda: claim.remaining)
        assert not told()
        clock.advance(2)
        wait_until("it is told", lambda: len(told()) == 2)
        assert told()[0].startswith("'a' has been renewed for 360")
        assert "after 86400 s that ends" in told()[0]
        clock.advance(82_000)
        wait_until("both are renewed", lambda: claim.remaining and other.remaining)
        clock.advance(1000)
        wait_until("it ends", lambda: "'a' was renewed for 86" in caplog.text)
        assert len(told()) == 3
        any_client.pexpire(key, SHORT)
        any_client.pexpire(claim_key("seen", other.item), SHORT)
        wait_until(
            "the other is renewed", lambda: int(any_client.pttl(claim_key("seen", other.item))) > SHORT
        )
        assert int(any_client.pttl(key)) <= SHORT
        other.release()
        claim.release()


@for_each("make_seconds", [float, lambda seconds: timedelta(seconds=seconds)])
def test_a_claim_is_renewed_for_some_seconds(
    any_client: redis.Redis,
    make_seconds: Callable[[float], Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`renew` may be a number of seconds, or a timedelta."""
    clock = patched(monkeypatch)
    f = make(any_client)
    with f.claim("a", renew=make_seconds(600)) as claim:
        for _ in range(2):
            wait_until("it is renewed", shortened(any_client))
        clock.advance(600)
        wait_until("it ends", lambda: re.search(r"'a' was renewed for 6\d\d s", caplog.text))
        clock.advance(30)  # on a busy machine the timer may have renewed it once more
        assert claim.lost
        claim.release()
    with f.claim("b", renew=make_seconds(1e-3)) as claim:
        assert claim


@for_each("is_asyncio", [False, True])
def test_a_batch_is_renewed_if_asked(any_server: Server, any_client: redis.Redis, is_asyncio: bool) -> None:  # noqa: FBT001 - a value to try
    """Without `renew`, its leases are left to run out."""

    async def claims() -> None:
        async with made(any_server) as f:
            await renewed(await f.claim_many(["a", "b"]), await f.claim_many(["c", "d"], renew=True))

    async def renewed(without: list[Any], asked: list[Any]) -> None:
        keys = [claim_key("seen", each.item) for each in (*without, *asked)]
        for key in keys:
            any_client.pexpire(key, SHORT)
        await until(lambda: all(int(any_client.pttl(key)) > SHORT for key in keys[2:]))
        assert all(int(any_client.pttl(key)) <= SHORT for key in keys[:2])

    any_client.flushall()
    if is_asyncio:
        asyncio.run(claims())
    else:
        f = make(any_client)
        asyncio.run(renewed(f.claim_many(["a", "b"]), f.claim_many(["c", "d"], renew=True)))


def test_a_loss_ends_the_block_with_an_error(
    any_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """The claim and the log report the loss during the work; nothing is committed."""
    f = make(any_client)

    def work() -> None:
        with f.claim("a") as claim:
            any_client.delete(only_claim(any_client))
            wait_until("the loss is noticed", lambda: claim.lost)
            assert not claim

    with caplog.at_level(logging.WARNING, "bloomredis"), pytest.raises(ClaimLostError, match="'a' is over"):
        work()
    wait_until("it is logged", lambda: "the claim on 'a' is over" in caplog.text)
    assert not f.contains("a")


def test_a_loss_ends_the_block_of_a_task(any_server: Server, any_client: redis.Redis) -> None:
    """In asyncio, a FLUSHALL ends the block of a task with an error too."""

    async def main() -> None:
        async with made(any_server) as f, f.claim("a") as claim:
            any_client.flushall()
            await until(lambda: claim.lost)

    with pytest.raises(ClaimLostError):
        asyncio.run(main())


def test_the_work_may_end_with_its_own_error(any_client: redis.Redis) -> None:
    """A loss does not replace the work's own error, and a loss already raised is not raised again."""
    f = make(any_client)

    def fail() -> None:
        with f.claim("a") as claim:
            any_client.delete(only_claim(any_client))
            wait_until("the loss is noticed", lambda: claim.lost)
            raise KeyError("a")

    with pytest.raises(KeyError):
        fail()
    with f.claim("b") as claim:
        any_client.delete(only_claim(any_client))
        wait_until("the loss is noticed", lambda: claim.lost)
        with pytest.raises(ClaimLostError):
            claim.commit()


def test_a_failed_renewal_is_made_again(any_server: Server, any_client: redis.Redis) -> None:
    """A renewal is retried, however often the server refuses it."""
    with proxied(any_server.socket) as proxy:
        f = make(proxy.client())
        proxy.plan("extend", *[refused("LOADING it is loading")] * 3, passed)
        with f.claim("a"):
            wait_until("it is renewed", shortened(any_client))


def test_a_lease_that_nobody_renewed_is_over(any_client: redis.Redis, clock: Clock) -> None:
    """The client knows without asking that a lease is over, as it cannot ask a server that is away."""
    claim = make(any_client).claim("a", lease=60, renew=False)
    assert not claim.lost
    clock.advance(60)
    assert (claim.lost, claim.remaining) == (True, 0)
    assert claim.state == "claimed"  # no call has found it lost yet


def test_a_forgotten_claim_ends_with_its_lease(any_client: redis.Redis) -> None:
    """A claim that nobody holds any more is not renewed, even if a renewal met an error."""
    f, other = make(any_client), make(any_client)
    held, forgotten = f.claim("held", lease=2), f.claim("a", lease=2)
    assert held
    assert forgotten
    key = claim_key("seen", held.item)
    del forgotten
    wait_until("the other one is over", lambda: any_client.keys("*claim*") == [key])
    assert other.claim("a")
    assert not held.lost


class ByHand(renewing._ThreadTimer):
    """A timer without a thread: a new claim that wakes it, or the test, looks at what was added."""

    def __init__(self) -> None:
        super().__init__()
        self.ticks: dict[float, list[Any]] = {}

    def look(self) -> None:
        """Look at what was added, as the thread does; nothing is due yet."""
        assert self._take(self.ticks) == []
        self._wakes_at = min(self.ticks, default=math.inf)

    _wake = look

    @property
    def waiting(self) -> int:
        """The number of claims that are not forgotten."""
        return len(self._added) + sum(map(len, self.ticks.values()))


def test_claims_that_have_ended_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that ended are forgotten after 20 seconds or a thousand other claims, whatever their leases."""
    monkeypatch.setattr(renewing, "_PER_LEASE", 3)
    clock = patched(monkeypatch)
    timer = ByHand()
    state = ClaimState("a", "claimed", b"", b"", until=clock.now() + 86_400, lease=86_400_000)
    held = [renewing.Renewal(state, None, 1e9, clock.now()) for _ in range(500)]
    for each in held:
        timer.add(each)
    for _ in range(2500):
        timer.add(renewing.Renewal(state, None, 1e9, clock.now()))
    assert 500 <= timer.waiting < 1510
    held = held[:1]
    del each
    clock.advance(25)  # looked at every 20 seconds, and at the next tick
    timer.look()
    assert timer.waiting == 1


def test_nothing_of_it_survives_a_fork(any_server: Server) -> None:
    """A forked child has no renewing thread, until it has a claim of its own."""
    with any_server.client() as client:
        f = make(client)
        claim = f.claim("a")

        def work() -> tuple[int, bool]:
            threads = threading.active_count()
            with any_server.client() as own, f.with_client(own).claim("b") as mine:
                key = claim_key("seen", mine.item)
                own.pexpire(key, SHORT)
                wait_until("it is renewed", lambda: int(own.pttl(key)) > SHORT)
                return threads, bool(mine)

        assert Child(work).result() == (1, True)
        claim.commit()


@pytest.mark.parametrize("fork", [os.fork, fork_in_c], ids=["", "in C"])
def test_a_child_renews_no_claim_of_its_parent(
    any_server: Server, fork: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the parent dies, its claim ends with its lease, although a child lives and renews its own claim."""
    monkeypatch.setattr(renewing, "_PER_LEASE", 3)
    with any_server.client() as client:
        client.flushall()
        make(client).add("warm")
        go_on, end = os.pipe()

        def parent() -> None:
            f = BloomFilter(any_server.client(), "seen", **SIZE)
            claims = [f.claim("parent's", lease=2)]

            def child() -> None:
                claims.append(f.with_client(any_server.client()).claim("child's", lease=2))
                os.close(end)
                os.read(go_on, 1)  # until the test ends it

            Child(child, fork)
            wait_until("the child has its claim", lambda: len(client_keys()) == 2)
            os._exit(0)

        def client_keys() -> list[Any]:
            with any_server.client() as own:
                return list(own.keys("*claim*"))

        ending = Child(parent)
        wait_until("the parent's claim is over", lambda: client_keys() == [claim_key("seen", "child's")])
        f = make(client)
        assert (f.claim("parent's").state, f.claim("child's").state) == ("claimed", "busy")
        os.close(end)
        os.close(go_on)
        with suppress(AssertionError):  # it reports nothing
            ending.result()


PROGRAM = """
import asyncio, sys, time
import redis, redis.asyncio
import bloomredis, bloomredis.asyncio

path, size = sys.argv[1], {"capacity": 1000, "error_rate": 0.01}
seen = bloomredis.BloomFilter(redis.Redis(unix_socket_path=path), "seen", **size)
held = [seen.claim("a", lease=1)]

async def main():
    pages = bloomredis.asyncio.BloomFilter(redis.asyncio.Redis(unix_socket_path=path), "seen", **size)
    held.append(await pages.claim("b", lease=1))
    print("claimed", flush=True)
    await asyncio.sleep(float(sys.argv[2]))

asyncio.run(main())
"""


@for_each("is_hung", [False, True])
def test_an_interpreter_that_ends_with_claims(stopped: Server, is_hung: bool) -> None:  # noqa: FBT001 - a value to try
    """It ends at once and prints nothing, even if a renewal gets no reply; claims end with their leases."""
    client = stopped.client()
    client.flushall()
    flags = ("-X", "dev", "-W", "ignore::ResourceWarning")
    command = [sys.executable, *flags, "-c", PROGRAM, stopped.socket, str(int(is_hung))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"claimed\n"
        if is_hung:
            signalled(stopped, signal.SIGSTOP)
        _, errors = process.communicate(timeout=PATIENCE)
    signalled(stopped, signal.SIGCONT)
    assert (process.returncode, errors) == (0, b"")
    wait_until("the claims are over", lambda: not client.keys("*claim*"))


def test_remaining_says_when_to_come_again(bloom: Any, client: redis.Redis) -> None:
    """For a busy item it is the rest of its holder's lease; it is 0 for done, released or lost items."""
    f = bloom(client, "seen", **SIZE)
    claims = f.claim_many(["a", "b"], lease=20)
    busy = f.claim_many(["b", "c", "a"])
    client.pexpire(claim_key("seen", claims[0].item), 5_000)
    again = f.claim("a")
    assert [each.state for each in busy] == ["busy", "claimed", "busy"]
    assert all(19 < each.remaining <= 20.001 for each in (busy[0], busy[2]))
    assert 29 < busy[1].remaining <= 30
    assert 4 < again.remaining <= 5.001
    f.release_many(claims[:1])
    f.commit_many(claims[1:])
    assert [each.remaining for each in (*claims, f.claim("b"))] == [0, 0, 0]


@for_each(("renew", "error"), [(None, TypeError), ("yes", TypeError), (-1, ValueError), (0, ValueError)])
def test_renew_is_a_bool_or_a_time(bloom: Any, renew: Any, error: type[Exception]) -> None:
    """Another value is refused before any I/O."""
    f = bloom(redis.Redis(port=1), "seen", **SIZE)
    for call in (f.claim, lambda item, renew: f.claim_many([item], renew=renew)):
        with pytest.raises(error, match="renew, unless it is True or False, must be"):
            call("a", renew=renew)


LEASES = count(90_000)
"""Leases that no test has used: each is warned of once in a process."""


@for_each("call", [lambda f, lease: f.claim("a", lease=lease), lambda f, lease: f.extend_many([], lease)])
def test_a_lease_that_looks_like_milliseconds(
    bloom: Any, client: redis.Redis, call: Callable[[Any, int], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The log has one warning; a day, and a longer time as a timedelta, are meant."""
    f = bloom(client, "seen", **SIZE)
    caplog.clear()
    lease = next(LEASES)
    call(f, lease)
    (warning,) = caplog.messages
    assert f"lease={lease}" in warning
    call(f, lease)
    f.claim("b", lease=86_400)
    f.claim("c", lease=timedelta(days=2))
    assert caplog.messages == [warning]


@for_each("verb", ["claim", "claim_many"])
def test_the_lease_is_a_keyword(bloom: Any, verb: str) -> None:
    """A number beside the item says nothing."""
    with pytest.raises(TypeError, match="positional argument"):
        getattr(bloom(redis.Redis(port=1), "seen", **SIZE), verb)("a", 5)


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
