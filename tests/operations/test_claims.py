"""Claims: one worker at a time holds an item, commits it once, and loses it when its lease ends."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing.process
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count, islice
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

import bloomredis.asyncio
from bloomredis import (
    BatchInterruptedError,
    BloomFilter,
    ClaimLostError,
    ClaimUncheckedError,
    ConnectionFailedError,
    FilterLostError,
    OutcomeUnknownError,
)
from bloomredis.operations.claims.state import ClaimOptions
from bloomredis.operations.events import CallEvent
from tests.support.losing import losing
from tests.support.racing import PROCESSES, race_threads
from tests.support.retries import retrying
from tests.support.servers import Server, binaries, running
from tests.support.sizes import long, short
from tests.support.values import for_each
from tests.support.waiting import wait_until


def make(bloom: Any, client: redis.Redis, **options: Any) -> Any:
    return bloom(client, "seen", capacity=10_000, error_rate=1e-9, **options)


def run(bloom: Any, claim: Any, call: str, *args: Any) -> None:
    """Call a method of a claim in either driver."""
    bloom.wait(getattr(claim, call)(*args))


def test_an_item_is_held_by_one(bloom: Any, client: redis.Redis) -> None:
    """The first claim is "claimed" and true, the second "busy" and false."""
    f = make(bloom, client)
    first, second = f.claim("a"), f.claim("a")
    assert (first.item, first.state, bool(first)) == ("a", "claimed", True)
    assert (second.item, second.state, bool(second)) == ("a", "busy", False)
    assert not f.contains("a")


def test_a_commit_puts_the_item_in(bloom: Any, client: redis.Redis) -> None:
    """The item is then in the filter and done for everybody, and no claim remains."""
    f = make(bloom, client)
    claim = f.claim("a")
    run(bloom, claim, "commit")
    assert claim.state == "done"
    assert f.contains("a")
    assert f.claim("a").state == "done"
    assert not f.add("a")
    assert f.info().count == 1
    assert not client.keys("*claim*")


def test_a_commit_of_what_is_done_does_nothing(bloom: Any, client: redis.Redis) -> None:
    """A second commit changes nothing, whether the same worker or another did the first."""
    f = make(bloom, client)
    claim = f.claim("a")
    run(bloom, claim, "commit")
    run(bloom, claim, "commit")
    done = f.claim("a")
    run(bloom, done, "commit")
    assert f.info().count == 1


def test_a_release_gives_the_item_back(bloom: Any, client: redis.Redis) -> None:
    """Another worker may claim the item at once; the released claim cannot be committed."""
    f = make(bloom, client)
    claim = f.claim("a")
    run(bloom, claim, "release")
    assert claim.state == "released"
    assert f.claim("a").state == "claimed"
    with pytest.raises(ClaimLostError, match="released"):
        run(bloom, claim, "commit")


def test_a_lease_runs_out(bloom: Any, client: redis.Redis) -> None:
    """Another worker claims the item; the late one can neither commit, extend nor release it."""
    f = make(bloom, client)
    late, late_too = f.claim("a", lease=0.01), f.claim("b", lease=0.01)
    wait_until("the leases run out", lambda: not client.keys("*claim*"))
    again = f.claim("a")
    assert again.state == "claimed"
    with pytest.raises(ClaimLostError, match="longer lease"):
        run(bloom, late, "commit")
    assert late.state == "lost"
    assert not f.contains("a")
    with pytest.raises(ClaimLostError, match="longer lease"):
        run(bloom, late_too, "extend", 10)
    run(bloom, late, "release")
    assert f.claim("a").state == "busy"
    run(bloom, again, "commit")
    assert f.contains("a")


def test_a_lease_can_be_extended(bloom: Any, client: redis.Redis) -> None:
    """The lease lasts for the given time from the call on."""
    f = make(bloom, client)
    claim = f.claim("a", lease=5)
    run(bloom, claim, "extend", 100)
    (key,) = client.keys("*claim*")
    assert 99_000 < client.pttl(key) <= 100_000
    run(bloom, claim, "commit")


def test_an_extension_never_shortens_a_lease(bloom: Any, client: redis.Redis) -> None:
    """Neither that of one claim nor those of a batch."""
    f = make(bloom, client)
    claim = f.claim("a", lease=60)
    run(bloom, claim, "extend", 1)
    assert f.extend_many([claim], 1) == ["claimed"]
    (key,) = client.keys("*claim*")
    assert claim.remaining > 50
    assert client.pttl(key) > 50_000


@for_each("lease", [0, -1, float("nan"), float("inf"), "1", None, True])
def test_a_bad_lease_is_refused(bloom: Any, any_client: redis.Redis, lease: Any) -> None:
    """A bad lease is refused before any I/O, with the value seen."""
    f = make(bloom, any_client)
    with pytest.raises((ValueError, TypeError), match=f"lease must be .* not {lease!r}"):
        f.claim("a", lease=lease)
    assert not any_client.exists("seen")


def test_a_batch_of_claims(bloom: Any, client: redis.Redis) -> None:
    """Claims come in the order of their items; equal items share one; a batch may need several scripts."""
    f = make(bloom, client)
    f.add("b")
    held = f.claim("c")
    claims = f.claim_many(["a", "b", "c", "a"])
    assert held
    assert [claim.state for claim in claims] == ["claimed", "done", "busy", "claimed"]
    assert claims[0] is claims[3]
    many = f.claim_many([f"item-{i}" for i in range(1000)])
    assert all(many)
    assert not any(f.claim_many([f"item-{i}" for i in range(1000)]))
    run(bloom, many[-1], "commit")
    assert f.contains_many(["item-998", "item-999"]) == [False, True]
    assert f.claim_many([]) == []


def test_a_claim_lives_in_the_filters_slot(bloom: Any, client: redis.Redis) -> None:
    """Its key has the filter's name as hash tag, and expires."""
    f = make(bloom, client)
    f.claim("a", lease=7)
    (key,) = client.keys("*claim*")
    assert key.startswith(b"{seen}:claim:")  # type: ignore[arg-type]  # keys are bytes here
    assert 6000 < client.pttl(key) <= 7000


def test_clear_ends_claims(bloom: Any, client: redis.Redis) -> None:
    """A claim of an older generation cannot be committed, and does not block a new one."""
    f = make(bloom, client)
    old, other = f.claim("a"), f.claim("b")
    f.clear()
    assert f.claim("a").state == "claimed"
    for claim in (old, other):
        with pytest.raises(ClaimLostError, match="cleared"):
            run(bloom, claim, "commit")
    assert f.contains_many(["a", "b"]) == [False, False]


def test_a_lost_filter_is_noticed(bloom: Any, client: redis.Redis) -> None:
    """A claim and a commit detect the loss."""
    f, g = make(bloom, client), make(bloom, client)
    claim = f.claim("a")
    client.delete("seen")
    with pytest.raises(FilterLostError):
        run(bloom, claim, "commit")
    with pytest.raises(FilterLostError):
        f.claim("b")
    assert g.claim("b")


def test_a_recreated_filter_takes_new_claims(bloom: Any, client: redis.Redis) -> None:
    """With on_lost="recreate" a claim that finds the loss is on the new filter and can be committed."""
    f = make(bloom, client, on_lost="recreate")
    f.add("a")
    client.delete("seen")
    claim = f.claim("a")
    run(bloom, claim, "commit")
    assert f.contains("a")


def test_the_context_manager(any_client: redis.Redis) -> None:
    """It commits on a clean exit, releases on an exception, and does nothing if no claim is held."""
    f = make(BloomFilter, any_client)
    with f.claim("a") as claim:
        assert claim
        with f.claim("a") as second:
            assert not second
    assert f.contains("a")

    def fails() -> None:
        with f.claim("b"):
            raise KeyError("b")

    with pytest.raises(KeyError):
        fails()
    assert f.claim("b").state == "claimed"
    with f.claim("c") as claim:
        claim.release()
    assert not f.contains("c")


def test_the_async_context_manager(any_server: Server) -> None:
    """The same works in asyncio, entered with an await or without."""

    async def main() -> None:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", capacity=100, error_rate=0.001)
            async with f.claim("a") as claim:
                assert claim
            async with await f.claim("b") as claim:
                assert claim
            assert await f.contains_many(["a", "b"]) == [True, True]
            with pytest.raises(asyncio.CancelledError):
                async with f.claim("c"):
                    raise asyncio.CancelledError
            assert await f.claim("c")

    asyncio.run(main())


@for_each("state", ["done", "busy"])
def test_a_claim_that_is_not_held_has_to_be_tested(any_client: redis.Redis, state: str) -> None:
    """Its block raises unless it tests the claim's truth or state. The block's own error has priority."""
    f = make(BloomFilter, any_client)
    held = f.claim(state)
    if state == "done":
        held.commit()
    for ask in (bool, lambda claim: claim.state):
        with f.claim(state) as claim:
            ask(claim)
    for ask in (repr, lambda claim: claim.item, lambda claim: claim.remaining, lambda claim: claim.token):
        with (
            pytest.raises(ClaimUncheckedError, match=f"{state}.*if claim:"),
            f.claim(state, renew=True) as claim,
        ):
            ask(claim)
    with pytest.raises(KeyError), f.claim(state):
        raise KeyError


def test_an_observed_claim_that_is_not_held_has_to_be_tested(any_client: redis.Redis, set_hook: Any) -> None:
    """A hook that counts claims does not count as the caller's test."""
    events: list[CallEvent] = []
    set_hook(events.append)
    f = make(BloomFilter, any_client)
    assert f.claim("a")
    for claim in (f.claim("a"), *f.claim_many(["a"])):
        with pytest.raises(ClaimUncheckedError), claim:
            pass
    assert [(event.new, event.busy) for event in events] == [(1, 0), (0, 1), (0, 1)]


def test_a_claim_that_is_held_need_not_be_tested(any_client: redis.Redis) -> None:
    """A held claim need not be tested, however its block ends."""
    f = make(BloomFilter, any_client)
    for end in ("commit", "release"):
        with f.claim(end) as claim:
            getattr(claim, end)()


def test_an_async_claim_that_is_not_held_has_to_be_tested(any_server: Server) -> None:
    """The same holds in asyncio."""

    async def main() -> None:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", capacity=100, error_rate=0.001)
            async with f.claim("a"):
                with pytest.raises(ClaimUncheckedError):
                    async with f.claim("a"):
                        pass

    asyncio.run(main())


def test_a_failed_release_keeps_the_workers_error(caplog: pytest.LogCaptureFixture) -> None:
    """The work's exception reaches the caller; the failed release is logged."""
    with running(binaries()["valkey-9"]) as server:
        f = make(BloomFilter, server.client(retry=Retry(NoBackoff(), 0)))

        def work() -> None:
            with f.claim("a"):
                server.stop()
                raise KeyError("a")

        with caplog.at_level(logging.WARNING, "bloomredis"), pytest.raises(KeyError):
            work()
    assert "'a' was not released" in caplog.text


def test_threads_claim_each_item_once(server: Server) -> None:
    """Of 8 threads that claim the same 300 items, one holds each item."""
    items = [f"item-{i}" for i in range(300)]

    def work(_: int) -> list[bool]:
        f = make(BloomFilter, server.client())
        return [bool(f.claim(item)) for item in items]

    wins = Counter(sum(answers) for answers in zip(*race_threads(work, 8), strict=True))
    assert wins == {1: len(items)}


@for_each("retries", [0, 3])
def test_lost_replies_lose_no_claim(server: Server, retries: int) -> None:
    """With one reply in ten lost, every item is claimed and committed once, and no commit fails."""
    items = [f"item-{i}" for i in range(300)]
    with losing(server.socket, share=0.1) as proxy:
        client = redis.Redis(port=proxy.port, **retrying(retries))
        make(BloomFilter, server.client()).create()
        f = make(BloomFilter, client)

        def asked(call: Callable[[], Any]) -> Any:
            while True:
                try:
                    return call()
                except (OutcomeUnknownError, ConnectionFailedError):
                    pass

        asked(f.create)
        for item in items:
            claim = asked(partial(f.claim, item))
            assert claim.state == "claimed"
            asked(claim.commit)
        assert proxy.lost > 30
    assert make(BloomFilter, server.client()).info().count == len(items)


def test_a_lost_claim_creates_no_filter(bloom: Any, any_client: redis.Redis) -> None:
    """A commit that finds its filter gone, or comes after such a commit, creates no filter."""
    f = make(bloom, any_client)
    claim = f.claim("a")
    any_client.delete("seen")
    with pytest.raises(FilterLostError):
        run(bloom, claim, "commit")
    f.acknowledge()
    with pytest.raises(ClaimLostError):
        run(bloom, claim, "commit")
    f.delete()
    with pytest.raises(ClaimLostError):
        run(bloom, claim, "commit")
    assert not any_client.exists("seen")


def test_a_released_claim_creates_no_filter(bloom: Any, any_client: redis.Redis) -> None:
    """Its commit creates no filter, though an earlier one found the filter gone."""
    f = make(bloom, any_client)
    claim = f.claim("a")
    any_client.delete("seen")
    with pytest.raises(FilterLostError):
        run(bloom, claim, "commit")
    run(bloom, claim, "release")
    f.delete()
    with pytest.raises(ClaimLostError, match="'released'"):
        run(bloom, claim, "commit")
    assert not any_client.exists("seen")


def claim_twice_without_an_answer(f: Any, patch: pytest.MonkeyPatch, *, inner_is_first: bool) -> None:
    """Claim "a" in two concurrent calls, one of them with "b"; neither gets its reply."""
    f.claim_many(["the server has the script"])
    execute: Any = redis.Redis.execute_command
    calls = 0

    def inner() -> None:
        with pytest.raises(BatchInterruptedError):
            f.claim_many(["a", "b"])

    def lost(client: Any, *command: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        is_outer = calls == 1
        if is_outer and inner_is_first:
            inner()
        execute(client, *command, **options)
        if is_outer and not inner_is_first:
            inner()
        raise redis.TimeoutError("no reply")

    with patch.context() as own:
        own.setattr(redis.Redis, "execute_command", lost)
        with pytest.raises(OutcomeUnknownError):
            f.claim("a")


@pytest.mark.parametrize("inner_is_first", [True, False])
def test_two_claims_without_an_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch, *, inner_is_first: bool
) -> None:
    """Whichever was executed first, one retry on the object returns the claim, and later ones do not."""
    f = make(BloomFilter, server.client())
    claim_twice_without_an_answer(f, monkeypatch, inner_is_first=inner_is_first)
    assert [f.claim(item).state for item in "aabb"] == ["claimed", "busy", "claimed", "busy"]


def test_an_error_between_two_owners(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the retry with the second owner fails, the next one still gets the first owner's claim."""
    owners = (each.to_bytes(8) * 2 for each in count(1000, -1))  # the inner call's is the first
    monkeypatch.setattr(ClaimOptions, "new_owners", lambda _, __, number: list(islice(owners, number)))
    f = make(BloomFilter, server.client())
    claim_twice_without_an_answer(f, monkeypatch, inner_is_first=False)
    execute: Any = redis.Redis.execute_command
    calls = 0

    def fails_second(client: Any, *command: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise redis.TimeoutError("no reply")
        return execute(client, *command, **options)

    with monkeypatch.context() as patch:
        patch.setattr(redis.Redis, "execute_command", fails_second)
        with pytest.raises(BatchInterruptedError) as caught:
            f.claim_many(["c", "a"])
    claims = [*caught.value.results, *f.claim_many(caught.value.rest)]
    assert [(claim.item, claim.state) for claim in claims] == [("c", "claimed"), ("a", "claimed")]


def test_an_interrupted_batch_of_claims(server: Server) -> None:
    """The error has the claims so far; a retry claims the rest."""
    items = [f"item-{i}" for i in range(1000)]
    with losing(server.socket, share=0.3) as proxy:
        f = make(BloomFilter, server.client())
        f.create()
        f = f.with_client(redis.Redis(port=proxy.port, retry=Retry(NoBackoff(), 0)))
        claims, rest, interruptions = [], items, 0
        while rest:
            try:
                claims += f.claim_many(rest)
                rest = []
            except BatchInterruptedError as error:
                claims += error.results
                rest = list(error.rest)
                interruptions += 1
        assert interruptions
    assert [claim.item for claim in claims] == items
    assert all(claims)


def jobs(count: int) -> list[str]:
    return [f"job-{i}" for i in range(count)]


def work_through(url: str, items: list[str]) -> None:
    """Process every item that is not done, until all are."""
    client = redis.Redis.from_url(url)
    f = make(BloomFilter, client)
    dice = random.Random()
    while rest := [item for item, done in zip(items, f.contains_many(items), strict=True) if not done]:
        dice.shuffle(rest)
        for item in rest:
            with suppress(ClaimLostError), f.claim(item, lease=0.3) as claim:
                if claim:
                    client.rpush("processed", item)
                    time.sleep(0.005)  # the work, during which the process may be killed
                    claim.commit()
                    client.rpush("committed", item)


@pytest.mark.parametrize(("count", "kills"), [short(60, 4), long(400, 40)])
def test_killed_workers_lose_no_item(server: Server, count: int, kills: int) -> None:
    """Workers with claims are killed at random: every item is processed, and committed exactly once."""
    dice, items = random.Random(1), jobs(count)

    def start() -> multiprocessing.process.BaseProcess:
        worker = PROCESSES.Process(target=work_through, args=(server.url, items))
        worker.start()
        return worker

    with server.client() as client:
        make(BloomFilter, client).create()
        workers = [start() for _ in range(4)]
        try:
            for kill in range(kills):
                wait_until("work goes on", partial(_has_come_to, client, count * kill // kills))
                place = dice.randrange(len(workers))
                workers[place].kill()
                workers[place].join()
                workers[place] = start()
            wait_until("all is done", partial(_has_come_to, client, count))
            for worker in workers:
                worker.join(30)
                assert worker.exitcode == 0
        finally:
            for worker in workers:
                worker.kill()
        assert set(client.lrange("processed", 0, -1)) == {item.encode() for item in items}
        assert max(Counter(client.lrange("committed", 0, -1)).values()) == 1
        assert make(BloomFilter, client).info().count == count
        assert all(make(BloomFilter, client).contains_many(items))


def _has_come_to(client: redis.Redis, count: int) -> bool:
    done: int = make(BloomFilter, client).info().count
    return done >= count
