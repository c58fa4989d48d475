"""Receipts: a retry gets the answer of the first execution."""

from __future__ import annotations

import time
from typing import Any

import pytest
import redis

from bloomredis import BatchInterruptedError, BloomFilter, OutcomeUnknownError
from bloomredis.protocol.keys import auxiliary_prefix
from bloomredis.protocol.receipts import Sessions, parse_token
from bloomredis.stored import planning
from tests.support.background import Child
from tests.support.inside import inside
from tests.support.keys import beside
from tests.support.losing import LosingClient
from tests.support.texts import text_of
from tests.support.values import for_each

pytestmark = pytest.mark.every_server


def make(client: Any, **options: Any) -> BloomFilter:
    return BloomFilter(client, "seen", capacity=10_000, error_rate=1e-6, **options)


@pytest.fixture
def losing(client: redis.Redis) -> LosingClient:
    """A client with an existing filter and loaded scripts."""
    made = LosingClient(client)
    make(made).add_many(["warm", "warmer"])
    client.script_load(text_of("add", b""))  # a script that reads receipts
    return made


def test_the_same_bytes_get_the_same_answer(losing: LosingClient) -> None:
    """A call that redis-py retries after a lost reply gets the first answer."""
    f = make(losing)
    assert f.add("a")
    assert f.add_many(["b", "a", "c"]) == [True, False, True]
    again = losing.client.execute_command(*losing.sent[-1])
    assert again in (b"101", "101")


@for_each("layout", planning.NAMES)
def test_a_short_reply_over_a_long_one(client: redis.Redis, layout: Any) -> None:
    """A receipt written over an older one holds only its own call's reply."""
    losing = LosingClient(client)
    f = BloomFilter(losing, "seen", capacity=1000, error_rate=0.001, layout=layout)  # type: ignore[arg-type]  # a stand-in
    assert all(f.add_many(map(str, range(50))))
    assert f.add("one")
    assert losing.client.execute_command(*losing.sent[-1]) == 1


@for_each("layout", planning.NAMES)
def test_a_receipt_lasts_for_ten_minutes(client: redis.Redis, layout: Any) -> None:
    """Its time to live is renewed below 595 s, or when all of it is gone."""
    f = BloomFilter(client, "seen", capacity=1000, error_rate=0.001, layout=layout)
    f.add("a")
    (receipt,) = beside(client, "receipt")
    client.pexpire(receipt, 599_000)
    f.add("b")
    assert client.pttl(receipt) <= 599_000
    client.pexpire(receipt, 594_000)
    f.add("c")
    assert 595_000 < client.pttl(receipt) <= 600_000
    client.persist(receipt)
    f.add("d")
    assert 595_000 < client.pttl(receipt) <= 600_000


@pytest.mark.parametrize("fate", ["lost", "never"])
def test_a_token_answers_as_the_first_try(losing: LosingClient, fate: str) -> None:
    """Executed or not, the item is new on retry, however often and from any object."""
    f = make(losing)
    f.create()
    losing.lose = [fate]
    with pytest.raises(OutcomeUnknownError) as caught:
        f.add("a")
    elsewhere = make(losing)
    assert elsewhere.add("a", token=caught.value.token)
    assert elsewhere.add("a", token=caught.value.token)
    assert not elsewhere.add("a")


@pytest.mark.parametrize("fate", ["lost", "never"])
def test_the_same_object_needs_no_token(losing: LosingClient, fate: str) -> None:
    """A plain retry loop loses nothing either, and the answer is given once."""
    f = make(losing)
    f.create()
    losing.lose = [fate, fate]
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError):
            f.add("a")
    assert f.add("a")
    assert not f.add("a")


def test_an_item_that_was_there_stays_there(losing: LosingClient) -> None:
    """A lost reply never makes an old item new."""
    f = make(losing)
    f.add("a")
    losing.lose = ["lost"]
    with pytest.raises(OutcomeUnknownError) as caught:
        f.add("a")
    assert not f.add("a", token=caught.value.token)


@pytest.mark.parametrize("fate", ["lost", "never"])
def test_the_rest_of_an_interrupted_batch(losing: LosingClient, fate: str) -> None:
    """The answers so far are kept, and a call with the rest loses nothing."""
    f = make(losing)
    f.create()
    items = [f"item-{i % 900}" for i in range(1200)]
    losing.lose = ["answer", fate]
    with pytest.raises(BatchInterruptedError) as caught:
        f.add_many(items)
    results, rest = caught.value.results, caught.value.rest
    assert rest == items[len(results) :]
    assert 0 < len(results) < 1200
    assert results + f.add_many(rest) == [True] * 900 + [False] * 300
    assert f.info().count == 902


def test_the_rest_may_be_cut_differently(losing: LosingClient) -> None:
    """Every item gets its answer, whatever batch retries it."""
    f = make(losing)
    f.create()
    losing.lose = ["lost"]
    with pytest.raises(BatchInterruptedError) as caught:
        f.add_many("abcdef"[i] for i in range(6))
    assert caught.value.results == []
    assert f.add("c")
    assert f.add_many(["f", "e", "c", "e"]) == [True, True, False, False]
    assert f.add_many(["a", "b", "d", "x"]) == [True] * 4


def test_dedupe_yields_what_was_answered_before_it_fails(losing: LosingClient) -> None:
    """New items with an answer are yielded, the others are in the error."""
    f = make(losing)
    f.create()
    losing.lose = ["answer", "lost"]
    items = [f"{i}" for i in range(900)]
    got: list[str] = []
    with pytest.raises(BatchInterruptedError) as caught:
        got.extend(f.dedupe(items))
    assert got + list(f.dedupe(caught.value.rest)) == items


def test_a_call_without_receipts_has_no_token(losing: LosingClient) -> None:
    """With retry_safe=False the error says that the outcome is unknown, and the server keeps nothing."""
    f = make(losing, retry_safe=False)
    f.create()
    keys = losing.client.dbsize()
    losing.lose = ["lost"]
    with pytest.raises(OutcomeUnknownError) as caught:
        f.add("a")
    assert caught.value.token is None
    assert losing.client.dbsize() == keys


@pytest.mark.parametrize("layout", ["classic", "blocked"])
def test_a_load_without_receipts_keeps_nothing(client: redis.Redis, layout: Any) -> None:
    """With retry_safe=False its items are counted by a call without a session."""
    f = BloomFilter[str](client, "seen", capacity=100_000, error_rate=0.01, layout=layout, retry_safe=False)
    f.update(map(str, range(50_000)))
    assert client.keys("*") == [b"seen"]
    assert abs(f.info().count - 50_000) < 1000


def test_receipts_are_bounded_by_callers(losing: LosingClient) -> None:
    """Many calls by one caller keep one receipt, which expires by itself."""
    f = make(losing)
    before = losing.client.dbsize()
    for i in range(200):
        f.add(f"{i}")
    assert losing.client.dbsize() == before + 1
    receipts = [key for key in losing.client.keys("*") if b":receipt:" in key]
    assert all(300_000 <= losing.client.pttl(key) <= 600_000 for key in receipts)


def test_a_forked_child_has_sessions_of_its_own() -> None:
    """Parent and child never number calls in the same session."""
    sessions = Sessions(auxiliary_prefix(b"seen"))
    session = sessions.take()
    session.free.append(session)
    assert Child(lambda: sessions.take().name).result() != sessions.take().name


@for_each("token", ["", "x", "0123456789abcdef-0/1", "0123456789abcdef-0/1/2/3", "*/1/1"])
def test_a_bad_token_is_refused(token: str) -> None:
    """A bad token is refused before any I/O, with the value seen."""
    with pytest.raises(ValueError, match="token must be"):
        parse_token(token, b"a")


@for_each(
    ("name", "prefix"),
    [("a", "{a}:"), ("x{a}y", "x{a}y::"), ("{}a", "{{}a}:"), ("a{b", "{a{b}:"), ("a}b{c}", "a}b{c}::")],
)
def test_receipts_share_the_filters_slot(name: str, prefix: str) -> None:
    """A filter's other keys have names that a cluster puts into its slot."""
    assert auxiliary_prefix(name.encode()).decode() == prefix


def test_the_answer_is_found_in_whichever_call_was_executed(client: redis.Redis) -> None:
    """Of several pending calls about an item, the later one may have been executed first."""
    f = make(client)
    f.create()
    operations: Any = inside(f)
    handle = operations.stored.handle
    packed = handle.layout.pack_one(b"a")
    lost, executed = operations.sessions.take(), operations.sessions.take()
    for session in (lost, executed):
        operations.pending.add(["a"], session.name, session.next_call(0), handle.generation, time.monotonic())
    client.eval(
        text_of("add", handle.identity), 2, f.name, executed.key, handle.identity, packed, executed.call
    )
    assert f.add("a")
    assert not f.add("a")
