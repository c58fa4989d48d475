"""Adds and removals whose replies are lost count once."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

import bloomredis
import bloomredis.asyncio
from bloomredis import ConnectionFailedError, OutcomeUnknownError
from bloomredis.operations.kinds.counting import CountingOperations
from bloomredis.protocol.keys import auxiliary_prefix
from bloomredis.protocol.receipts import REMOVAL, Sessions
from tests.support.counting import MOST, PLANNED, counting, expected_counters, stored_counters
from tests.support.inside import inside
from tests.support.losing import LosingClient, losing
from tests.support.servers import Server
from tests.support.texts import text_of
from tests.support.values import for_each


@pytest.fixture
def lossy(client: redis.Redis) -> LosingClient:
    """A client with an existing filter that has "a" twice, and with loaded scripts."""
    made = LosingClient(client)
    f = counting(made)
    f.add_many(["a", "a", "x"])
    assert f.remove("x")
    return made


def assert_counted(lossy: LosingClient, *items: str) -> None:
    """Compare the counters and the count with the expected items."""
    assert stored_counters(lossy.client) == expected_counters(PLANNED, Counter(items))
    assert counting(lossy.client).info().count == len(items)


@pytest.mark.parametrize("verb", ["add", "remove"])
def test_the_same_bytes_count_once(lossy: LosingClient, verb: str) -> None:
    """A call that redis-py retries after a lost reply gets the first answer and changes nothing."""
    assert getattr(counting(lossy), verb)("a") == (verb == "remove")
    again = lossy.client.execute_command(*lossy.sent[-1])
    assert again == (verb == "remove")
    assert_counted(lossy, *("a" * (3 if verb == "add" else 1)))


def test_a_refused_removal_stays_refused(lossy: LosingClient) -> None:
    """A retry after somebody else's add removes nothing."""
    f = counting(lossy)
    assert not f.remove("b")
    assert counting(lossy.client).add("b")
    assert lossy.client.execute_command(*lossy.sent[-1]) == 0
    assert_counted(lossy, "a", "a", "b")


@pytest.mark.parametrize("verb", ["add", "remove"])
def test_a_copy_that_comes_late_is_refused(lossy: LosingClient, verb: str) -> None:
    """A copy that arrives after its session's next call is not executed again."""
    f = counting(lossy)
    getattr(f, verb)("a")
    late = lossy.sent[-1]
    f.add("b")
    f.remove("b")
    before = lossy.client.get("seen")
    with pytest.raises(redis.ResponseError, match="has gone on"):
        lossy.client.execute_command(*late)
    assert lossy.client.get("seen") == before


def arrives_late(lossy: LosingClient, copy: tuple[Any, ...]) -> None:
    """Let a copy of a call arrive late; if the call was given up, the copy is refused."""
    with suppress(redis.ResponseError):
        lossy.client.execute_command(*copy)


@pytest.mark.parametrize("fate", ["lost", "never"])
@pytest.mark.parametrize("verb", ["add", "remove"])
@pytest.mark.parametrize("way", ["again", "by token"])
def test_a_call_without_an_answer_counts_once(lossy: LosingClient, verb: str, fate: str, way: str) -> None:
    """Executed or not, a retry has an answer, the call has counted once, and no copy of it counts."""
    f = counting(lossy)
    f.create()
    lossy.lose = [fate, fate]
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError) as caught:
            getattr(f, verb)("a")
    copies = lossy.sent[1:]
    token = caught.value.token if way == "by token" else None
    asked = counting(lossy.client) if token else f
    assert getattr(asked, verb)("a", token=token) == (verb == "remove")
    for copy in copies:
        arrives_late(lossy, copy)
    assert_counted(lossy, *("a" * (3 if verb == "add" else 1)))


@pytest.mark.parametrize("fate", ["lost", "never"])
def test_the_rest_of_a_batch_counts_once(lossy: LosingClient, fate: str) -> None:
    """After a batch without an answer, each of its equal items gets its own answer on retry."""
    f = counting(lossy)
    f.create()
    lossy.lose = [fate]
    batch = ["b", "c", "b", "a", "b"]
    with pytest.raises(bloomredis.BatchInterruptedError) as caught:
        f.add_many(batch)
    copy = lossy.sent[-1]
    assert f.add_many(caught.value.rest) == [True, True, False, False, False]
    arrives_late(lossy, copy)
    assert_counted(lossy, "a", "a", *batch)


@for_each("executed", [(True, True), (False, True), (True, False), (False, False)])
def test_each_of_two_calls_is_owed_its_own_answer(client: redis.Redis, executed: tuple[bool, bool]) -> None:
    """Two concurrent removals without an answer are two removals, executed or not."""
    f = counting(client)
    f.add_many(["a", "a", "a"])
    operations = inside(f)
    assert isinstance(operations, CountingOperations)
    sessions, handle = Sessions(auxiliary_prefix(b"seen"), REMOVAL), operations.stored.handle
    assert handle
    packed = handle.layout.pack_one(b"a")
    for session, done in zip([sessions.take(), sessions.take()], executed, strict=True):
        operations.removals.add(
            ["a"], session.name, session.next_call(0), handle.generation, time.monotonic()
        )
        if done:
            client.eval(
                text_of("remove", handle.identity),
                2,
                f.name,
                session.key,
                handle.identity,
                packed,
                session.call,
            )
    assert [f.remove("a") for _ in range(2)] == [True, True]
    assert stored_counters(client) == expected_counters(PLANNED, Counter("a"))


@pytest.mark.parametrize("fate", ["lost", "never"])
def test_a_removal_settles_an_add_in_doubt(lossy: LosingClient, fate: str) -> None:
    """An add without an answer counts once before the removal; the next add is another one."""
    f = counting(lossy)
    f.create()
    lossy.lose = [fate]
    with pytest.raises(OutcomeUnknownError) as caught:
        f.add("b")
    copy = lossy.sent[-1]
    assert f.remove("b")
    assert_counted(lossy, "a", "a")
    assert f.add("b", token=caught.value.token)  # the same effect as that call, and nothing more
    arrives_late(lossy, copy)
    assert_counted(lossy, "a", "a")
    assert f.add("b")
    assert_counted(lossy, "a", "a", "b")


def test_settling_may_fail(lossy: LosingClient) -> None:
    """Then nothing is removed, the error has no token, and a second call continues."""
    f = counting(lossy)
    f.create()
    lossy.lose = ["lost", "lost"]
    for call in (f.add, f.remove):
        with pytest.raises(OutcomeUnknownError) as caught:
            call("b")
    assert caught.value.token is None
    assert f.remove("b")
    assert_counted(lossy, "a", "a")


@pytest.mark.parametrize("fate", ["lost", "never"])
def test_an_add_leaves_a_removal_in_doubt(lossy: LosingClient, fate: str) -> None:
    """The removal's retry is still the same removal, and does not take an item added meanwhile."""
    f = counting(lossy)
    f.create()
    lossy.lose = [fate]
    with pytest.raises(OutcomeUnknownError):
        f.remove("a")
    assert not f.add("a")
    assert f.remove("a")
    assert_counted(lossy, "a", "a")


@pytest.mark.parametrize("emptied", ["clear", "delete"])
def test_a_doubt_ends_with_the_filter(lossy: LosingClient, emptied: str) -> None:
    """Pending answers are dropped when this object clears the filter."""
    f = counting(lossy)
    f.create()
    lossy.lose = ["lost", "lost"]
    for call, item in ((f.add, "b"), (f.remove, "a")):
        with pytest.raises(OutcomeUnknownError):
            call(item)
    getattr(f, emptied)()
    assert f.add("b")
    assert not f.remove("a")
    assert_counted(lossy, "b")


def test_tokens_are_of_one_kind(lossy: LosingClient) -> None:
    """An add refuses a removal's token, and the reverse."""
    f = counting(lossy)
    f.create()
    for call, other, item in ((f.add, f.remove, "b"), (f.remove, f.add, "c")):
        lossy.lose = ["lost"]
        with pytest.raises(OutcomeUnknownError) as caught:
            call(item)
        with pytest.raises(ValueError, match="of this call"):
            other(item, token=caught.value.token)


def test_without_receipts_a_lost_reply_is_told(lossy: LosingClient) -> None:
    """With retry_safe=False the error has no token, and a second removal is another one."""
    f = counting(lossy, retry_safe=False)
    f.create()
    lossy.lose = ["lost"]
    with pytest.raises(OutcomeUnknownError) as caught:
        f.remove("a")
    assert caught.value.token is None
    assert f.remove("a")
    assert_counted(lossy)


def test_a_pickled_filter_removes(client: redis.Redis) -> None:
    """The copy has its own sessions, marked like those of the original."""
    f = counting(client)
    f.add_many(["a", "a"])
    copy = pickle.loads(pickle.dumps(f)).with_client(client)  # noqa: S301 - its own pickle
    assert f.remove("a")
    assert copy.remove("a")
    assert not copy.remove("a")


RETRIES: dict[str, dict[str, Any]] = {"as the client has it": {}, "none": {"retry": Retry(NoBackoff(), 0)}}
CALLS: list[tuple[str, str]] = [
    call
    for i in range(150)
    for call in (("add", f"{i}"), ("add", f"{i % 40}"), ("remove", f"{i}"))
    if call[0] == "add" or i % 3
]


def balance(calls: Iterable[tuple[str, str]]) -> Counter[str]:
    """Return how often each item is in after these calls."""
    items: Counter[str] = Counter()
    for verb, item in calls:
        items[item] += 1 if verb == "add" else -1
    assert min(items.values()) >= 0
    assert max(items.values()) < MOST
    return items


@for_each("retries", RETRIES)
def test_lost_replies_change_no_counter(server: Server, retries: str) -> None:
    """With one reply in ten lost, adds and removals leave exactly the right counters."""
    with losing(server.socket, share=0.1) as proxy, server.client() as direct:
        counting(direct).create()
        with redis.Redis(port=proxy.port, **RETRIES[retries]) as client:
            f = counting(client)
            for verb, item in CALLS:
                answered(getattr(f, verb), item)
        assert proxy.lost > 20
        assert stored_counters(direct) == expected_counters(PLANNED, balance(CALLS))


def answered(call: Callable[[str], bool], item: str) -> None:
    """Repeat a call until it has an answer, as the documentation says."""
    while True:
        try:
            call(item)
        except (OutcomeUnknownError, ConnectionFailedError):  # ConnectionFailedError while no call is pending
            continue
        return


def test_lost_replies_of_tasks_change_no_counter(server: Server) -> None:
    """The same holds for tasks whose adds of equal items share batches."""
    calls = [("add", f"{i % 100}") for i in range(300)] + [("remove", f"{i % 100}") for i in range(200)]

    async def main(port: int) -> None:
        none = redis.asyncio.retry.Retry(NoBackoff(), 0)
        async with redis.asyncio.Redis(port=port, retry=none) as client:
            f = bloomredis.asyncio.CountingBloomFilter(client, "seen", capacity=1000, error_rate=1e-6)

            async def until_answered(verb: str, item: str) -> None:
                while True:
                    try:
                        await getattr(f, verb)(item)
                    except (OutcomeUnknownError, ConnectionFailedError):
                        continue
                    return

            for some in (calls[:300], *(calls[start : start + 50] for start in range(300, 500, 50))):
                await asyncio.gather(*(until_answered(*call) for call in some))  # at most 100 connections

    with losing(server.socket, share=0.2) as proxy, server.client() as direct:
        counting(direct).create()
        asyncio.run(main(proxy.port))
        assert proxy.lost > 20
        assert stored_counters(direct) == expected_counters(PLANNED, balance(calls))
