"""Observed calls: one event each, for the hook of a filter or of the process."""

from __future__ import annotations

import asyncio
import io
import logging
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BloomFilter, CallEvent, FilterLostError, OutcomeUnknownError, instrument
from tests.support.background import started
from tests.support.proxy import lost, passed, proxied
from tests.support.servers import Server
from tests.support.values import for_each

SIZE: dict[str, Any] = {"capacity": 1000, "error_rate": 1e-6}


@pytest.fixture
def events() -> Iterator[list[CallEvent]]:
    """The events of all filters in this process."""
    found: list[CallEvent] = []
    instrument(found.append)
    yield found
    instrument(None)


def numbers(events: list[CallEvent]) -> list[tuple[str, int, int | None]]:
    """Return the verbs, items and new ones of events, and forget these."""
    found = [(each.verb, each.items, each.new) for each in events]
    events.clear()
    return found


def test_each_verb_has_its_numbers(bloom: Any, any_client: redis.Redis) -> None:
    """How many items it was about, and how many of them were new."""
    events: list[CallEvent] = []
    f = bloom(any_client, "seen", observe=events.append, **SIZE)
    f.add("a")
    f.add("a")
    f.contains("b")
    f.add_many(["a", "b", "b"])
    f.contains_many(iter(["a", "x"]))
    f.update(["b", "c"])
    list(f.dedupe(["c", "d"]))
    f.new_mask(["e"])
    f.load(["f", "g"])
    assert numbers(events) == [
        *(("add", 1, 1), ("add", 1, 0), ("contains", 1, 1)),
        *(("add_many", 3, 1), ("contains_many", 2, 1), ("add_many", 2, 1), ("add_many", 2, 1)),
        *(("add_many", 1, 1), ("load", 2, None)),
    ]
    f.info()
    bloom.copy(f, any_client, "other")
    f.merge(f.snapshot())
    f.save(io.BytesIO())
    f.clear()
    whole = ("info", "copy", "snapshot", "merge", "save", "clear")
    assert numbers(events) == [(verb, 0, None) for verb in whole]


def test_claims_have_theirs(bloom: Any, any_client: redis.Redis) -> None:
    """Those of a filter and those of a claim; new are those that were claimed."""
    events: list[CallEvent] = []
    f = bloom(any_client, "seen", observe=events.append, **SIZE)
    claim = f.claim("a")
    for call in (claim.extend(9), claim.commit()) if claim else ():
        bloom.wait(call)
    claims = f.claim_many(["a", "b", "c"])
    f.commit_many(claims)
    assert numbers(events) == [
        *(("claim", 1, 1), ("extend", 1, None), ("commit", 1, None)),
        *(("claim_many", 3, 2), ("commit_many", 3, None)),
    ]


def test_an_event_says_who_was_called(any_client: redis.Redis) -> None:
    """The filter, its class, the time, one round trip, and that all went well; it cannot be changed."""
    events: list[CallEvent] = []
    f = BloomFilter(any_client, "seen", observe=events.append, **SIZE)
    f.add("warm")
    f.add("a")
    event = events[-1]
    assert (event.filter, event.kind, event.verb) == ("seen", "BloomFilter", "add")
    assert (event.round_trips, event.resends, event.outcome) == (1, 0, "ok")
    assert 0 < event.seconds < 60
    assert events[0].round_trips > 1  # which has opened the filter
    with pytest.raises(AttributeError):
        event.items = 2  # type: ignore[misc]  # that is what is tried


def test_a_call_that_needs_no_server_has_no_round_trip(any_client: redis.Redis) -> None:
    """That of a local cache."""
    events: list[CallEvent] = []
    f = BloomFilter(any_client, "seen", local_cache=True, observe=events.append, **SIZE)
    f.add("a")
    f.add("a")
    assert [each.round_trips > 0 for each in events] == [True, False]


@for_each("by_token", [False, True])
def test_who_asks_for_the_answer_of_an_earlier_call_is_seen(any_server: Server, *, by_token: bool) -> None:
    """With the token of its error, or on the same object; the call that was lost asked for nothing."""
    events: list[CallEvent] = []
    with proxied(any_server.socket) as proxy, any_server.client() as client:
        f = BloomFilter(proxy.client(), "seen", observe=events.append, **SIZE)
        f.add("warm")
        proxy.always("add", lost)
        with pytest.raises(OutcomeUnknownError) as caught:
            f.add("a")
        asked = BloomFilter(client, "seen", observe=events.append, **SIZE) if by_token else f
        proxy.always("add", passed)
        assert asked.add("a", token=caught.value.token if by_token else None)
    assert [each.receipts for each in events] == [0, 0, 1]


def test_errors_have_their_outcome(any_server: Server) -> None:
    """And none has new items."""
    events: list[CallEvent] = []
    with proxied(any_server.socket) as proxy, any_server.client() as client:
        f = BloomFilter(proxy.client(), "seen", observe=events.append, **SIZE)
        f.add("warm")
        proxy.always("add", lost)
        for call in (lambda: f.add("a"), lambda: f.add_many(["b"]), lambda: f.add_many(7)):  # type: ignore[arg-type]
            with pytest.raises((bloomredis.BloomError, TypeError)):
                call()
        proxy.calm()
        client.flushall()
        with pytest.raises(FilterLostError):
            f.contains("a")
    outcomes = [(each.outcome, each.new) for each in events]
    assert outcomes == [
        *(("ok", 1), ("unknown", None), ("interrupted", None)),
        *(("error", None), ("lost", None)),
    ]


def test_the_hook_of_the_process_hears_all(any_client: redis.Redis, events: list[CallEvent]) -> None:
    """Filters that were made before and after, but for one that has its own, until it is taken back."""
    own: list[CallEvent] = []
    after = BloomFilter(any_client, "after", **SIZE)
    with_own = BloomFilter(any_client, "own", observe=own.append, **SIZE)
    instrument(None)
    before = BloomFilter(any_client, "before", **SIZE)
    before.add("a")
    assert events == []
    instrument(events.append)
    for f in (before, after, with_own):
        f.add("b")
    assert [each.filter for each in events] == ["before", "after"]
    assert [each.filter for each in own] == ["own"]
    instrument(None)
    before.add("c")
    assert len(events) == 2


def test_who_is_not_observed_has_nothing_to_test(any_client: redis.Redis) -> None:
    """Its methods are those of its class."""
    f = BloomFilter(any_client, "seen", **SIZE)
    assert "add" not in f.__dict__
    observed = BloomFilter(any_client, "seen", observe=print, **SIZE)
    assert observed.add.__doc__ == BloomFilter.add.__doc__


def test_a_copy_is_observed_too(any_client: redis.Redis, events: list[CallEvent]) -> None:
    """And so is one over another client, and one that was pickled."""
    f = BloomFilter(any_client, "seen", **SIZE)
    f.with_client(any_client).add("a")
    pickle.loads(pickle.dumps(f)).with_client(any_client).add("a")  # noqa: S301 - its own
    assert numbers(events) == [("add", 1, 1), ("add", 1, 0)]


def test_a_hook_that_fails_is_logged(
    bloom: Any, any_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """The call has its answer."""

    def hook(_: CallEvent) -> None:
        raise KeyError("hook")

    f = bloom(any_client, "seen", observe=hook, **SIZE)
    with caplog.at_level(logging.ERROR, "bloomredis"):
        assert f.add("a")
        assert f.add_many(["a", "b"]) == [False, True]
    assert caplog.text.count("the hook that observes 'seen' failed") == 2


@for_each("hook", ["print", 7])
def test_a_bad_hook_is_refused(bloom: Any, hook: Any) -> None:
    """Whether for the process or for a filter."""
    with pytest.raises(TypeError, match="hook must be a callable"):
        instrument(hook)
    with pytest.raises(TypeError, match="observe must be a callable"):
        bloom(redis.Redis(port=1), "seen", observe=hook, **SIZE)


def test_threads_count_their_own_round_trips(any_server: Server) -> None:
    """Of calls at the same time each has one."""
    events: list[CallEvent] = []
    with any_server.client() as client:
        f = BloomFilter(client, "seen", observe=events.append, **SIZE)
        f.add_many(["warm", "up"])
        events.clear()
        barrier = threading.Barrier(4)

        def work(number: int) -> None:
            barrier.wait(30)
            for i in range(50):
                f.add_many([f"{number}-{i}", "x"])

        for each in [started(lambda number=number: work(number)) for number in range(4)]:  # type: ignore[misc]
            each.result(60)
    assert {each.round_trips for each in events} == {1}
    assert len(events) == 200


def test_tasks_that_share_a_round_trip(any_server: Server) -> None:
    """Each has an event, and not more round trips are counted than were made."""
    events: list[CallEvent] = []

    async def main() -> None:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", observe=events.append, **SIZE)
            await f.add_many(["warm", "up"])
            await f.contains("warm")
            events.clear()
            assert all(await asyncio.gather(*(f.add(f"{i}") for i in range(20))))
            shared = sum(each.round_trips for each in events)
            assert 0 < shared <= 20
            await f.add_many(["a", "b"])
            await f.contains("a")
            await f.add("c")
            assert [each.round_trips for each in events[20:]] == [1, 1, 1]
            del events[20:]

    asyncio.run(main())
    assert [(each.verb, each.new, each.outcome) for each in events] == [("add", 1, "ok")] * 20


def test_claims_that_are_busy_or_lost_are_counted(bloom: Any, any_client: redis.Redis) -> None:
    """Busy are those that another worker holds; lost, those that a commit finds gone."""
    events: list[CallEvent] = []
    f = bloom(any_client, "seen", observe=events.append, **SIZE)
    held = f.claim_many(["a", "b"])
    f.claim("a")
    f.claim_many(["a", "b", "c"])
    any_client.delete(*any_client.keys("{seen}:claim:*"))
    f.commit_many(held)
    assert [(each.busy, each.lost) for each in events] == [(0, 0), (1, 0), (2, 0), (0, 2)]


def test_answers_of_the_local_cache_are_counted(any_client: redis.Redis) -> None:
    """Of a filter that has one; not those of the server."""
    events: list[CallEvent] = []
    f = BloomFilter(any_client, "seen", local_cache=True, observe=events.append, **SIZE)
    f.add_many(["a", "b"])
    f.add_many(["a", "b"])
    f.add("a")
    f.contains("x")
    assert [each.cached for each in events] == [0, 2, 1, 0]
