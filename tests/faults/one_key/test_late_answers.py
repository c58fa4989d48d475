"""Late answers: "already there" does not count if the item may be the call's own."""

from __future__ import annotations

import asyncio
import copy
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

import bloomredis.asyncio
from bloomredis import BatchInterruptedError, CountingBloomFilter, OutcomeUnknownError
from bloomredis.protocol.receipts import RECEIPT_SECONDS
from tests.support.clock import Clock
from tests.support.keys import beside, forget_receipts
from tests.support.proxy import Held, Proxy, after, dropped, lost, once_executed
from tests.support.servers import Server
from tests.support.sharing import shared

SIZE: dict[str, Any] = {"capacity": 10_000, "error_rate": 1e-9}
LATE = RECEIPT_SECONDS + 20


@pytest.fixture
def admin(any_server: Server) -> Iterator[redis.Redis]:
    """A client that bypasses the proxy."""
    with any_server.client() as made:
        yield made


def outlived(admin: redis.Redis, clock: Clock) -> Callable[[], None]:
    """Return an action for between two attempts: enough time passes for the receipt to expire."""

    def action() -> None:
        clock.advance(LATE)
        forget_receipts(admin)

    return action


def test_a_call_that_outlives_its_receipt(
    any_proxy: Proxy, admin: redis.Redis, clock: Clock, bloom: Any
) -> None:
    """An add that its client retries too late never gets "already there" for its own item."""
    f = bloom(any_proxy.client(retries=1), "seen", **SIZE)
    f.add("warm")
    any_proxy.plan("add", once_executed(outlived(admin, clock), lost))
    with pytest.raises(OutcomeUnknownError):
        f.add("x")
    assert "x" in f


def eleven_minutes(clock: Clock, admin: redis.Redis) -> Iterator[None]:
    """Let each round of a loop take a minute; after ten of them the receipt has expired."""
    for minute in itertools.count(1):
        clock.advance(60)
        if minute == 10:
            forget_receipts(admin)
        yield


@pytest.mark.parametrize("by_token", [False, True])
@pytest.mark.parametrize("another", [False, True])
def test_a_loop_that_asks_for_eleven_minutes(
    any_proxy: Proxy, admin: redis.Redis, clock: Clock, bloom: Any, *, by_token: bool, another: bool
) -> None:
    """The loop and every later retry get a final error, never "already there"."""
    f = bloom(any_proxy.client(retries=0), "seen", **SIZE)
    f.add("warm")
    any_proxy.plan("add", lost, *[dropped] * 9)
    token: str | None = None
    told: list[OutcomeUnknownError] = []
    rounds = eleven_minutes(clock, admin)
    while not (told and told[-1].final):
        asked = bloom(any_proxy.client(retries=0), "seen", **SIZE) if another and by_token else f
        with pytest.raises(OutcomeUnknownError) as caught:
            asked.add("x", token=token)
        told.append(caught.value)
        token = caught.value.token if by_token else None
        next(rounds)
        assert len(told) < 20
    assert len(told) > 10
    assert "cannot be known any more, so do not retry" in str(told[-1])
    assert copy.copy(told[-1]).final
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError) as caught:
            f.add("x", token=told[-1].token)
        assert caught.value.final


@pytest.mark.parametrize("verb", ["add", "remove"])
@pytest.mark.parametrize("by_token", [False, True])
def test_a_call_that_counts_is_not_asked_about_without_its_receipt(
    any_proxy: Proxy, admin: redis.Redis, clock: Clock, verb: str, *, by_token: bool
) -> None:
    """The retry gets a final error and sends nothing; a call without the token is a new call."""
    f = CountingBloomFilter(any_proxy.client(retries=0), "seen", **SIZE)
    before = 2 if verb == "remove" else 0
    f.add_many(["x"] * before + ["warm"])
    f.remove("warm")  # loads the scripts
    f.add("warm")
    any_proxy.plan(verb, lost)
    with pytest.raises(OutcomeUnknownError) as caught:
        getattr(f, verb)("x")
    outlived(admin, clock)()
    other = CountingBloomFilter(any_proxy.client(retries=0), "seen", **SIZE)
    asked, token = (other, caught.value.token) if by_token else (f, None)
    for _ in range(3 if by_token else 1):
        with pytest.raises(OutcomeUnknownError, match="count it twice") as caught:
            getattr(asked, verb)("x", token=token)
        assert caught.value.final
    executed = before + (1 if verb == "add" else -1)
    assert taken_out(other, "x") == executed
    assert asked.add("x")
    assert asked.remove("x")


def taken_out(f: CountingBloomFilter, item: str) -> int:
    """Return how often an item can be removed."""
    return sum(1 for _ in iter(lambda: f.remove(item), False))


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="the monotonic clock counts all time here")
def test_a_machine_that_slept(any_proxy: Proxy, admin: redis.Redis, clock: Clock, bloom: Any) -> None:
    """The time asleep counts: receipts and leases have expired."""
    f = bloom(any_proxy.client(retries=1), "seen", **SIZE)
    f.add("warm")
    claim = f.claim("claimed", lease=60)

    def suspended() -> None:
        clock.sleep_deeply(LATE)
        forget_receipts(admin)

    any_proxy.plan("add", once_executed(suspended, lost))
    with pytest.raises(OutcomeUnknownError):
        f.add("x")
    assert claim.lost
    assert claim.remaining == 0


def test_a_loop_over_the_rest_for_eleven_minutes(
    any_proxy: Proxy, admin: redis.Redis, clock: Clock, bloom: Any
) -> None:
    """Each unknowable item is reported; the loop drops it and continues with the others."""
    f = bloom(any_proxy.client(retries=0), "seen", **SIZE)
    f.add("b")
    any_proxy.plan("add", lost, *[dropped] * 9)
    rounds = eleven_minutes(clock, admin)
    rest: Any = ["a", "b", "c"]
    answers: list[Any] = []
    while rest:
        try:
            answers += f.add_many(rest)
            rest = []
        except BatchInterruptedError as error:
            answers += error.results
            rest = error.rest
            if error.final:
                answers.append("unknowable")
                rest = rest[1:]
        next(rounds)
    assert answers == ["unknowable"] * 3
    assert f.add_many(["d", "e"]) == [True, True]


def test_of_callers_that_share_a_call_one_is_told(any_proxy: Proxy, admin: redis.Redis, clock: Clock) -> None:
    """An unknowable item is final for its own caller, not for callers whose items shared the call."""

    async def scene() -> None:
        async with any_proxy.asyncio_client(retries=0) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
            await f.add("warm")
            any_proxy.plan("add", lost)
            with pytest.raises(OutcomeUnknownError):
                await f.add("x")
            outlived(admin, clock)()
            asked = await asyncio.gather(*(f.add(item) for item in ("a", "x", "b")), return_exceptions=True)
            for item, each in (("a", asked[0]), ("b", asked[2])):
                assert each is True or await f.add(item)
            assert isinstance(asked[1], OutcomeUnknownError)
            assert asked[1].final
            assert not any(getattr(each, "final", False) for each in asked[::2])

    asyncio.run(scene())


def test_a_late_answer_from_the_receipt(any_proxy: Proxy, clock: Clock, bloom: Any) -> None:
    """An answer from a receipt is valid, however late."""
    f = bloom(any_proxy.client(retries=1), "seen", **SIZE)
    f.add("warm")
    any_proxy.plan("add", once_executed(lambda: clock.advance(LATE), lost))
    assert f.add("x")


def test_a_late_call_that_was_not_executed(
    any_proxy: Proxy, admin: redis.Redis, clock: Clock, bloom: Any
) -> None:
    """An item that was not added at first is new when the second attempt runs."""
    f = bloom(any_proxy.client(retries=1), "seen", **SIZE)
    f.add("warm")
    any_proxy.plan("add", after(outlived(admin, clock), dropped))
    assert f.add("x")


def test_a_late_batch(any_proxy: Proxy, admin: redis.Redis, clock: Clock, bloom: Any) -> None:
    """No item of the batch gets "already there"."""
    f = bloom(any_proxy.client(retries=1), "seen", **SIZE)
    f.add("warm")
    any_proxy.plan("add", once_executed(outlived(admin, clock), lost))
    with pytest.raises(BatchInterruptedError) as caught:
        f.add_many(["a", "b", "c"])
    assert isinstance(caught.value.__cause__, OutcomeUnknownError)
    assert False not in caught.value.results


def test_a_late_removal(any_proxy: Proxy, admin: redis.Redis, clock: Clock, bloom: Any) -> None:
    """The removal does not get "not in" for the item that it removed itself."""
    f = bloom(any_proxy.client(retries=1), "seen", kind="CountingBloomFilter", **SIZE)
    f.add_many(["x", "warm"])
    f.remove("warm")
    any_proxy.plan("remove", once_executed(outlived(admin, clock), lost))
    with pytest.raises(OutcomeUnknownError):
        f.remove("x")


def test_a_late_call_of_many_tasks(any_proxy: Proxy, admin: redis.Redis, clock: Clock) -> None:
    """None of the tasks that share the call gets "already there"."""

    async def main() -> list[Any]:
        async with any_proxy.asyncio_client(retries=1) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
            return await shared(any_proxy, f, map(f.add, "abc"), once_executed(outlived(admin, clock), lost))

    assert [type(each) for each in asyncio.run(main())] == [OutcomeUnknownError] * 3


@contextmanager
def pending(proxy: Proxy, f: Any, item: str) -> Iterator[str]:
    """Leave an executed add without an answer; yield its token."""
    proxy.plan("add", lost)
    with pytest.raises(OutcomeUnknownError) as caught:
        f.add(item)
    assert caught.value.token is not None
    yield caught.value.token


@pytest.mark.parametrize("in_flight", [0.0, 140.0])
@pytest.mark.parametrize("way", ["again", "by token"])
def test_a_token_holds_for_a_minute_from_the_error(
    any_proxy: Proxy, admin: redis.Redis, clock: Clock, bloom: Any, *, in_flight: float, way: str
) -> None:
    """It is valid for a minute after ten attempts of 15 s each, with the longest of timeouts."""
    f = bloom(any_proxy.client(retries=1), "seen", **SIZE)
    f.add("warm")
    any_proxy.plan("add", lost, after(lambda: clock.advance(in_flight), lost))
    with pytest.raises(OutcomeUnknownError) as caught:
        f.add("x")
    clock.advance(60)
    if way == "again":
        assert f.add("x")
    else:
        assert bloom(admin, "seen", **SIZE).add("x", token=caught.value.token)


def test_a_receipt_outlasts_all_sendings_by_a_minute(any_client: redis.Redis, bloom: Any) -> None:
    """The server keeps a receipt for longer than ten attempts of 15 s, plus a minute."""
    bloom(any_client, "seen", **SIZE).add("x")
    (receipt,) = beside(any_client, "receipt")
    assert any_client.pttl(receipt) > (10 * 15 + 60) * 1000


@pytest.mark.parametrize("way", ["again", "by token"])
def test_a_pending_item_whose_receipt_is_gone(
    any_proxy: Proxy, admin: redis.Redis, clock: Clock, bloom: Any, way: str
) -> None:
    """The item is present, and whether it was new is unknown: the call raises instead of guessing."""
    f = bloom(any_proxy.client(), "seen", **SIZE)
    f.add("warm")
    with pending(any_proxy, f, "x") as token:
        outlived(admin, clock)()
        with pytest.raises(OutcomeUnknownError):
            f.add("x", token=token if way == "by token" else None)
    assert "x" in f


def test_a_pending_item_that_was_not_executed_is_new_however_late(
    any_proxy: Proxy, admin: redis.Redis, clock: Clock, bloom: Any
) -> None:
    """The item is absent, so the retry adds it."""
    f = bloom(any_proxy.client(), "seen", **SIZE)
    f.add("warm")
    any_proxy.plan("add", dropped)
    with pytest.raises(OutcomeUnknownError):
        f.add("x")
    outlived(admin, clock)()
    assert f.add("x")


def test_the_rest_of_a_batch_whose_receipt_is_gone(
    any_proxy: Proxy, admin: redis.Redis, clock: Clock, bloom: Any
) -> None:
    """No item of the batch gets "already there"."""
    f = bloom(any_proxy.client(), "seen", **SIZE)
    f.add("warm")
    any_proxy.plan("add", lost)
    with pytest.raises(BatchInterruptedError) as caught:
        f.add_many(["a", "b"])
    outlived(admin, clock)()
    with pytest.raises(BatchInterruptedError) as again:
        f.add_many(caught.value.rest)
    assert isinstance(again.value.__cause__, OutcomeUnknownError)
    assert again.value.results == []


def test_an_item_that_is_known_to_others_stays_so(any_proxy: Proxy, clock: Clock, bloom: Any) -> None:
    """A prompt "already there" is an answer, even while other items are pending."""
    f = bloom(any_proxy.client(), "seen", **SIZE)
    f.add_many(["known", "warm"])
    with pending(any_proxy, f, "x"):
        clock.advance(LATE)
        assert not f.add("known")
        assert not any(f.add_many(["known", "warm"]))


def test_an_answer_that_was_kept_does_not_age(any_proxy: Proxy, clock: Clock) -> None:
    """An answer that arrived after its caller had gone is returned to a retry at any time."""

    async def main() -> None:
        held = Held()
        async with any_proxy.asyncio_client() as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
            await f.add("warm")
            any_proxy.plan("add", held)
            alone = asyncio.create_task(f.add("alone"))
            await asyncio.to_thread(held.wait)
            waiting = [asyncio.create_task(f.add(item)) for item in ("x", "y")]
            await asyncio.sleep(0)
            again = Held()
            any_proxy.plan("add", again)
            held.go.set()
            assert await alone
            await asyncio.to_thread(again.wait)
            waiting[0].cancel()
            again.go.set()
            assert await waiting[1]
            clock.advance(LATE)
            assert await f.add("x")

    asyncio.run(main())
