"""Observed calls: one event each, for the hook of the process."""

from __future__ import annotations

import asyncio
import inspect
import io
import logging
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import pytest
import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BloomFilter, CallEvent, FilterLostError, OutcomeUnknownError, instrument
from bloomredis.protocol.metering import of_thread
from tests.support.background import started
from tests.support.proxy import lost, passed, proxied
from tests.support.servers import Server
from tests.support.values import for_each

SIZE: dict[str, Any] = {"capacity": 1000, "error_rate": 1e-6}


@pytest.fixture
def events(set_hook: Any) -> list[CallEvent]:
    """The events of all filters in this process."""
    found: list[CallEvent] = []
    set_hook(found.append)
    return found


def numbers(events: list[CallEvent]) -> list[tuple[str, int, int | None]]:
    """Return the verbs, items and new items of events, and clear the events."""
    found = [(each.verb, each.items, each.new) for each in events]
    events.clear()
    return found


def test_each_verb_has_its_numbers(bloom: Any, any_client: redis.Redis, events: list[CallEvent]) -> None:
    """An event has the number of items of its call, and how many of them were new."""
    f = bloom(any_client, "seen", **SIZE)
    f.add("a")
    f.add("a")
    f.contains("b")
    f.add_many(["a", "b", "b"])
    f.contains_many(iter(["a", "x"]))
    f.add_many(["b", "c"])
    list(f.dedupe(["c", "d"]))
    f.add_mask(["e"])
    f.update(["f", "g"])
    assert numbers(events) == [
        *(("add", 1, 1), ("add", 1, 0), ("contains", 1, 1)),
        *(("add_many", 3, 1), ("contains_many", 2, 1), ("add_many", 2, 1), ("add_many", 2, 1)),
        *(("add_many", 1, 1), ("update", 2, None)),
    ]
    f.info()
    bloom.copy(f, any_client, "other")
    f.merge(f.snapshot())
    f.save(io.BytesIO())
    f.clear()
    whole = ("info", "copy", "snapshot", "merge", "save", "clear")
    assert numbers(events) == [(verb, 0, None) for verb in whole]


def test_claims_have_theirs(bloom: Any, any_client: redis.Redis, events: list[CallEvent]) -> None:
    """Calls of a filter about claims and calls of a claim have events; "new" counts the claimed items."""
    f = bloom(any_client, "seen", **SIZE)
    claim = f.claim("a")
    for call in (claim.extend(9), claim.commit()) if claim else ():
        bloom.wait(call)
    claims = f.claim_many(["a", "b", "c"])
    f.commit_many(claims)
    assert numbers(events) == [
        *(("claim", 1, 1), ("extend", 1, None), ("commit", 1, None)),
        *(("claim_many", 3, 2), ("commit_many", 3, None)),
    ]


def test_an_event_says_who_was_called(any_client: redis.Redis, events: list[CallEvent]) -> None:
    """An event has the filter, its class, the time, one round trip and success; it is immutable."""
    f = BloomFilter(any_client, "seen", **SIZE)
    f.add("warm")
    f.add("a")
    event = events[-1]
    assert (event.filter, event.kind, event.verb) == ("seen", "BloomFilter", "add")
    assert (event.round_trips, event.resends, event.outcome) == (1, 0, "ok")
    assert 0 < event.seconds < 60
    assert events[0].round_trips > 1  # more than one, since it opened the filter
    with pytest.raises(AttributeError):
        event.items = 2  # type: ignore[misc]  # tested on purpose


def test_a_call_that_needs_no_server_has_no_round_trip(
    any_client: redis.Redis, events: list[CallEvent]
) -> None:
    """A call that a local cache answers has no round trip."""
    f = BloomFilter(any_client, "seen", local_cache=60, **SIZE)
    f.add("a")
    f.add("a")
    assert [each.round_trips > 0 for each in events] == [True, False]


@for_each("by_token", [False, True])
def test_who_asks_for_the_answer_of_an_earlier_call_is_seen(
    any_server: Server, events: list[CallEvent], *, by_token: bool
) -> None:
    """A retry by token or on the same object counts as a receipt; the call with the lost reply does not."""
    events.clear()
    with proxied(any_server.socket) as proxy, any_server.client() as client:
        f = BloomFilter(proxy.client(), "seen", **SIZE)
        f.add("warm")
        proxy.always("add", lost)
        with pytest.raises(OutcomeUnknownError) as caught:
            f.add("a")
        asked = BloomFilter(client, "seen", **SIZE) if by_token else f
        proxy.always("add", passed)
        assert asked.add("a", token=caught.value.token if by_token else None)
    assert [each.receipts for each in events] == [0, 0, 1]


def test_errors_have_their_outcome(any_server: Server, events: list[CallEvent]) -> None:
    """A failed call's event has its outcome and no new items."""
    with proxied(any_server.socket) as proxy, any_server.client() as client:
        f = BloomFilter(proxy.client(), "seen", **SIZE)
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
    """The hook sees filters made before and after, until it is removed."""
    after = BloomFilter(any_client, "after", **SIZE)
    instrument(None)
    before = BloomFilter(any_client, "before", **SIZE)
    before.add("a")
    assert events == []
    instrument(events.append)
    for f in (before, after):
        f.add("b")
    assert [each.filter for each in events] == ["before", "after"]
    instrument(None)
    before.add("c")
    assert len(events) == 2


@pytest.mark.usefixtures("events")
def test_no_method_of_an_object_is_replaced(any_client: redis.Redis) -> None:
    """Observed or not, a filter and a claim have the methods of their classes, with their signatures."""
    f = BloomFilter(any_client, "seen", **SIZE)
    claim = f.claim("a")
    assert not f.__dict__.keys() & {*CALLS}
    assert not hasattr(claim, "__dict__")
    assert str(inspect.signature(f.add)) == "(item: 'I | WorkItem', *, token: 'str | None' = None) -> 'bool'"
    assert asyncio.iscoroutinefunction(bloomredis.asyncio.BloomFilter.add)


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda f, _: f.add("a"),
    "contains": lambda f, _: f.contains(item="a"),
    "add_many": lambda f, _: f.add_many(["a"]),
    "contains_many": lambda f, _: f.contains_many(["a"]),
    "remove": lambda f, _: f.remove("a"),
    "update": lambda f, _: f.update(["a"]),
    "claim": lambda f, _: f.claim("b"),
    "claim_many": lambda f, _: f.claim_many(["c"]),
    "commit_many": lambda f, _: f.commit_many([]),
    "release_many": lambda f, _: f.release_many([]),
    "extend_many": lambda f, _: f.extend_many([], 9),
    "create": lambda f, _: f.create(),
    "acknowledge": lambda f, _: f.acknowledge(),
    "info": lambda f, _: f.info(),
    "clear": lambda f, _: f.clear(),
    "delete": lambda f, _: f.delete(),
    "expire": lambda f, _: f.expire(60),
    "save": lambda f, _: f.save(io.BytesIO()),
    "restore": lambda f, client: f.restore(client, "seen", io.BytesIO(b"nothing of the kind")),
    "copy": lambda f, client: f.copy(client, "copy"),
    "merge": lambda f, _: f.merge(f),
    "snapshot": lambda f, _: f.snapshot(),
    "adopt": lambda f, client: f.adopt(client, name="seen"),
    "queue_add": lambda f, client: f.queue_add(client.pipeline(), "a"),
    "queue_contains": lambda f, client: f.queue_contains(client.pipeline(), "a"),
}
"""A call of each verb of a filter; it may end in an error."""
CALLS_OF_A_CLAIM: dict[str, Callable[[Any, Any], Any]] = {
    "commit": lambda claim, _: claim.commit(),
    "release": lambda claim, _: claim.release(),
    "extend": lambda claim, _: claim.extend(9),
}
UNOBSERVED = {
    *("name", "from_url", "with_client", "close", "aclose"),  # send nothing
    *("item", "state", "is_own", "remaining", "lost", "token", "from_token"),  # nor does a claim
    *("open", "dedupe", "add_mask", "contains_mask", "once"),  # make calls that are observed
}
KINDS: dict[str, dict[str, Any]] = {
    "BloomFilter": {},
    "CountingBloomFilter": {},
    "ScalingBloomFilter": {},
    "ShardedBloomFilter": {},
    "RotatingBloomFilter": {"window": 60},
}
HALVES = {"sync": (bloomredis, redis.Redis), "asyncio": (bloomredis.asyncio, redis.asyncio.Redis)}


async def made(call: Any) -> Any:
    """Return the answer to a call of either driver, or None after an error; a block is entered and left."""
    with suppress(Exception):
        if inspect.isawaitable(call):
            return await call
        if isinstance(call, AbstractContextManager) and not hasattr(call, "item"):  # claims have it
            with call:
                return None
        if isinstance(call, AbstractAsyncContextManager):
            async with call:
                return None
        return call


async def unseen(target: Any, client: Any, calls: dict[str, Any], events: list[CallEvent]) -> list[str]:
    """Return the public names of an object that made no event, except those in `UNOBSERVED`."""
    left = []
    for verb in sorted({each for each in dir(type(target)) if not each.startswith("_")} - UNOBSERVED):
        events.clear()
        if verb in calls:
            with suppress(Exception):
                await made(calls[verb](target, client))
        if [(each.filter, each.verb) for each in events] != [("seen", verb)]:
            left.append(verb)
    return left


@for_each("half", [*HALVES])
@for_each("kind", [*KINDS])
def test_each_public_call_is_seen(any_server: Server, events: list[CallEvent], half: str, kind: str) -> None:
    """Each call has one event, whatever its outcome, unless its method is in `UNOBSERVED`."""
    module, make = HALVES[half]

    async def main() -> list[str]:
        client = make(unix_socket_path=any_server.socket)
        f = getattr(module, kind)(client, "seen", **SIZE, **KINDS[kind])
        left = await unseen(f, client, CALLS, events)
        assert {each.kind for each in events} <= {kind}
        left += await unseen(await made(f.claim("a")), client, CALLS_OF_A_CLAIM, events)
        assert [each.kind for each in events] == [kind]
        await made(f.close() if half == "sync" else client.aclose())
        return left

    assert asyncio.run(main()) == []


@for_each("module", [bloomredis, bloomredis.asyncio])
def test_no_public_class_is_left_out(module: Any) -> None:
    """Every public class is a filter, a claim, a record, an error, or answers without a server."""
    classes = {name for name in module.__all__ if isinstance(getattr(module, name), type)}
    others = {name for name in classes if not issubclass(getattr(module, name), Exception)} - {
        *KINDS,
        "Claim",
    }
    assert others <= {"CallEvent", "FilterInfo", "FilterPlan", "LocalFilter", "Skipped", "WorkItem"}


def test_a_call_inside_another_has_its_own_round_trips(
    any_client: redis.Redis, events: list[CallEvent]
) -> None:
    """A nested call's round trips count for that call alone; afterwards the thread counts nothing."""
    seen, others = (BloomFilter(any_client, name, **SIZE) for name in "ab")
    seen.add("x")
    others.add("x")
    seen.update(["warm"])
    events.clear()
    seen.update(item for item in ("i", "j", "k") if not others.contains(item))
    alone, load = events[:-1], events[-1]
    assert [(each.verb, each.round_trips) for each in alone] == [("contains", 1)] * 3
    events.clear()
    seen.update(["l", "m", "n"])
    assert load.round_trips == events[0].round_trips
    assert of_thread.meter is None


class Surrounding:
    """A hook that is entered before a call; it records its arguments, and fails where told to."""

    def __init__(self, *failing: str) -> None:
        self.seen: list[Any] = []
        self._failing = failing

    def _note(self, what: Any) -> None:
        self.seen.append(what)
        if what in self._failing:
            raise KeyError(what)

    @contextmanager
    def around(self, *names: str) -> Iterator[Callable[[CallEvent], None] | None]:
        self._note(names)
        self._note("enter")
        token = INSIDE.set(names[-1])
        try:
            yield None if "mute" in self._failing else self.report
        finally:
            INSIDE.reset(token)
        self._note("leave")

    def report(self, event: CallEvent) -> None:
        self._note((event.verb, event.outcome, INSIDE.get()))
        self._note("report")


INSIDE: ContextVar[str] = ContextVar("inside", default="")


def test_a_hook_can_be_around_a_call(bloom: Any, any_client: redis.Redis, set_hook: Any) -> None:
    """The hook is entered before the call with its names, called with the event, and left."""
    hook = Surrounding()
    set_hook(hook)
    f = bloom(any_client, "seen", **SIZE)
    f.add("a")
    with pytest.raises(TypeError):
        f.add_many(7)
    assert hook.seen == [
        *(("seen", "BloomFilter", "add"), "enter", ("add", "ok", "add"), "report", "leave"),
        *(("seen", "BloomFilter", "add_many"), "enter", ("add_many", "error", "add_many"), "report", "leave"),
    ]


def test_a_call_is_made_inside_of_its_hook(any_server: Server, set_hook: Any) -> None:
    """Commands are sent in the context of the hook, in the caller's thread or task."""
    inside: list[str] = []

    class Client(redis.Redis):
        def execute_command(self, *args: Any, **options: Any) -> Any:
            inside.append(INSIDE.get())
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    class AsyncClient(redis.asyncio.Redis):
        async def execute_command(self, *args: Any, **options: Any) -> Any:
            inside.append(INSIDE.get())
            return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    async def main() -> None:
        async with AsyncClient(unix_socket_path=any_server.socket) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
            await asyncio.gather(f.contains("a"), f.info())
            async with f.claim("b") as claim:
                assert claim

    set_hook(Surrounding())
    BloomFilter(Client(unix_socket_path=any_server.socket), "seen", **SIZE).add("a")
    assert set(inside) == {"add"}
    asyncio.run(main())
    assert {"contains", "info", "claim", "commit"} <= set(inside)
    assert "" not in inside


@for_each("failing", ["enter", "report", "leave"])
def test_a_hook_around_that_fails_is_logged(
    bloom: Any, any_client: redis.Redis, set_hook: Any, caplog: pytest.LogCaptureFixture, failing: str
) -> None:
    """The call keeps its answer or error, and every hook that was entered is left."""
    hook = Surrounding(failing)
    set_hook(hook)
    f = bloom(any_client, "seen", **SIZE)
    caplog.clear()
    with caplog.at_level(logging.ERROR, "bloomredis"):
        assert f.add(failing)
        with pytest.raises(TypeError):
            f.add_many(7)
    assert caplog.text.count("the hook that observes 'seen' failed") == 2
    assert hook.seen.count("leave") == (0 if failing == "enter" else 2)


def test_a_hook_around_may_want_no_event(bloom: Any, any_client: redis.Redis, set_hook: Any) -> None:
    """A hook that yields None gets no event."""
    hook = Surrounding("mute")
    set_hook(hook)
    assert bloom(any_client, "seen", **SIZE).add("a")
    assert hook.seen[1:] == ["enter", "leave"]


def test_a_claim_that_was_made_before_is_seen(any_client: redis.Redis, set_hook: Any) -> None:
    """The hook sees the commit of an earlier claim."""
    found: list[CallEvent] = []
    claim = BloomFilter(any_client, "seen", **SIZE).claim("a")
    set_hook(found.append)
    claim.commit()
    assert [(each.filter, each.kind, each.verb) for each in found] == [("seen", "BloomFilter", "commit")]


def test_a_copy_is_observed_too(any_client: redis.Redis, events: list[CallEvent]) -> None:
    """A copy is observed too, over another client and after pickling."""
    f = BloomFilter(any_client, "seen", **SIZE)
    f.with_client(any_client).add("a")
    pickle.loads(pickle.dumps(f)).with_client(any_client).add("a")  # noqa: S301 - its own pickle
    assert numbers(events) == [("add", 1, 1), ("add", 1, 0)]


def test_a_hook_that_fails_is_logged(
    bloom: Any, any_client: redis.Redis, set_hook: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The call keeps its answer, and the error is logged."""

    def hook(_: CallEvent) -> None:
        raise KeyError("hook")

    set_hook(hook)
    f = bloom(any_client, "seen", **SIZE)
    with caplog.at_level(logging.ERROR, "bloomredis"):
        assert f.add("a")
        assert f.add_many(["a", "b"]) == [False, True]
    assert caplog.text.count("the hook that observes 'seen' failed") == 2


@for_each("hook", ["print", 7])
def test_a_bad_hook_is_refused(hook: Any) -> None:
    """A hook that cannot be called raises a TypeError."""
    with pytest.raises(TypeError, match="hook must be a callable"):
        instrument(hook)


def test_threads_count_their_own_round_trips(any_server: Server, events: list[CallEvent]) -> None:
    """Each of several concurrent calls has one round trip."""
    with any_server.client() as client:
        f = BloomFilter(client, "seen", **SIZE)
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


def test_tasks_that_share_a_round_trip(any_server: Server, events: list[CallEvent]) -> None:
    """Each task has an event, and no more round trips are counted than were made."""

    async def main() -> None:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
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


def test_claims_that_are_busy_or_lost_are_counted(
    bloom: Any, any_client: redis.Redis, events: list[CallEvent]
) -> None:
    """Items that another worker holds count as busy, those whose claim a commit found lost as lost."""
    f = bloom(any_client, "seen", **SIZE)
    held = f.claim_many(["a", "b"])
    f.claim("a")
    f.claim_many(["a", "b", "c"])
    any_client.delete(*any_client.keys("{seen}:claim:*"))
    f.commit_many(held)
    assert [(each.busy, each.lost) for each in events] == [(0, 0), (1, 0), (2, 0), (0, 2)]


def test_answers_of_the_local_cache_are_counted(any_client: redis.Redis, events: list[CallEvent]) -> None:
    """Only answers of the filter's local cache are counted, not those of the server."""
    f = BloomFilter(any_client, "seen", local_cache=60, **SIZE)
    f.add_many(["a", "b"])
    f.add_many(["a", "b"])
    f.add("a")
    f.contains("x")
    assert [each.cached for each in events] == [0, 2, 1, 0]


@for_each("verb", ["add", "claim"])
def test_each_shared_round_trip_is_counted_once(
    any_server: Server, events: list[CallEvent], verb: str
) -> None:
    """The events of tasks have as many round trips as the server has seen scripts, batch after batch."""

    async def main() -> None:
        async with redis.asyncio.Redis(unix_socket_path=any_server.socket) as client:
            f: Any = bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)
            await f.add("opens")
            await f.claim("loads the script")

            async def work(task: int) -> None:
                for i in range(10):
                    await getattr(f, verb)(f"{task}-{i}")

            events.clear()
            with any_server.client() as admin:
                admin.config_resetstat()
                await asyncio.gather(*map(work, range(64)))
                sent = admin.info("commandstats")["cmdstat_evalsha"]["calls"]
            assert sum(each.round_trips for each in events) == sent < 320

    asyncio.run(main())
    assert len(events) == 640
