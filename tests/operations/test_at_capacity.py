"""Filters with ``on_full="raise"``: each verb stops at the capacity, and delivers what it did before."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BatchInterruptedError, BloomFilter, FilterFullError, OutcomeUnknownError
from bloomredis.operations.claims import calls as claim_calls
from tests.support.modules import needs_module
from tests.support.proxy import after, lost, passed, proxied
from tests.support.racing import race_processes, race_threads
from tests.support.servers import Server
from tests.support.values import for_each

CAPACITY = 50
ITEMS = [f"item {number}" for number in range(CAPACITY + 30)]
LAYOUTS = ("blocked", "classic", "module")
FULL = "is full and was made for capacity 50"

Told = tuple[list[str], list[str]]
"""The items that were told to be new, and those that were refused or have no answer."""


def made(make: Any, client: Any, layout: str, **options: Any) -> Any:
    return make(
        client,
        "f",
        capacity=CAPACITY,
        error_rate=1e-6,
        on_full="raise",
        layout=layout,
        **options,
    )


def one_by_one(call: Callable[[str], bool]) -> Told:
    new: list[str] = []
    refused: list[str] = []
    for item in ITEMS:
        try:
            if call(item):
                new.append(item)
        except FilterFullError:
            refused.append(item)
    return new, refused


def interrupted(batch: Sequence[str], call: Callable[[Sequence[str]], object]) -> Told:
    """Make a call that stops in the middle; check that its error has an answer or a place for each item."""
    with pytest.raises(BatchInterruptedError, match=FULL) as met:
        call(batch)
    error = met.value
    assert isinstance(error.__cause__, FilterFullError)
    assert list(error.rest) == batch[len(error.results) :]
    return [item for item, is_new in zip(batch, error.results, strict=False) if is_new], list(error.rest)


def in_batches(call: Callable[[Sequence[str]], Any]) -> Told:
    """Make three calls whose items overlap."""
    new: list[str] = []
    for batch in (ITEMS[:10], ITEMS[5:20]):
        new += [item for item, is_new in zip(batch, call(batch), strict=True) if is_new]
    last, rest = interrupted(ITEMS, call)
    return new + last, rest


def adding(f: Any, wait: Any) -> Told:  # only claims need `wait`
    return one_by_one(f.add)


def adding_many(f: Any, wait: Any) -> Told:
    return in_batches(f.add_many)


def masking(f: Any, wait: Any) -> Told:
    with pytest.raises(BatchInterruptedError) as met:
        f.add_mask(np.array(ITEMS))
    rest: Any = met.value.rest
    assert rest.tolist() == ITEMS[CAPACITY:]
    return [item for item, is_new in zip(ITEMS, met.value.results, strict=False) if is_new], ITEMS[CAPACITY:]


def deduping(f: Any, wait: Any) -> Told:
    new: list[str] = []
    source = iter(ITEMS)
    with pytest.raises(BatchInterruptedError) as met:
        new.extend(f.dedupe(source, batch=20))
    assert isinstance(met.value.__cause__, FilterFullError)
    return new, [*met.value.rest, *source]


def claiming(f: Any, wait: Any) -> Told:
    def call(item: str) -> bool:
        claim = f.claim(item)
        wait(claim.commit())
        return bool(claim.state == "done")

    return one_by_one(call)


def claiming_many(f: Any, wait: Any) -> Told:
    """Claim as many as there is room for, and then more: known ones come before the first refused one."""
    assert f.commit_many(f.claim_many(ITEMS[:CAPACITY])) == ["done"] * CAPACITY
    with pytest.raises(BatchInterruptedError, match=FULL) as met:
        f.claim_many(ITEMS)
    assert [claim.state for claim in met.value.results] == ["done"] * CAPACITY
    return ITEMS[:CAPACITY], list(met.value.rest)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [CAPACITY + 5, 3])
def test_a_batch_of_claims_stops_at_the_room(
    bloom: Any, client: redis.Redis, monkeypatch: pytest.MonkeyPatch, layout: str, size: int
) -> None:
    """Its own claims are counted, over all of its scripts; they are held, and each commit succeeds."""
    if layout == "module":
        needs_module(client)
    monkeypatch.setattr(claim_calls, "MOST_CLAIMS", size)
    f = made(bloom, client, layout)
    f.clear()
    assert f.add_many(ITEMS[:2]) == [True, True]
    with pytest.raises(BatchInterruptedError, match=FULL) as met:
        f.claim_many(ITEMS[: CAPACITY + 4])
    assert isinstance(met.value.__cause__, FilterFullError)
    assert [claim.state for claim in met.value.results] == ["done"] * 2 + ["claimed"] * (CAPACITY - 2)
    assert list(met.value.rest) == ITEMS[CAPACITY : CAPACITY + 4]
    one = f.claim(ITEMS[CAPACITY])  # what is claimed is not counted for others
    bloom.wait(one.commit())
    assert f.commit_many(met.value.results) == ["done"] * CAPACITY
    assert f.info().count == CAPACITY + 1


def loading(f: Any, wait: Any) -> Told:
    """A load has no answers; its error says how many of the items are in."""
    with pytest.raises(BatchInterruptedError, match=f"^{CAPACITY} items were added.*{FULL}") as met:
        f.update(ITEMS)
    assert (met.value.results, met.value.done) == ([], CAPACITY)
    assert isinstance(met.value.__cause__, FilterFullError)
    return ITEMS[:CAPACITY], list(met.value.rest)


VERBS = (adding, adding_many, masking, deduping, claiming, claiming_many, loading)


@pytest.mark.parametrize("layout", LAYOUTS)
@for_each("verb", VERBS)
def test_each_verb_stops_at_the_capacity(bloom: Any, client: redis.Redis, layout: str, verb: Any) -> None:
    """Every item in was told to be new, and every other was refused or is in the rest."""
    if layout == "module":
        needs_module(client)
    f = made(bloom, client, layout)
    f.clear()
    new, refused = verb(f, bloom.wait)
    assert (len(new), f.info().count) == (CAPACITY, CAPACITY)
    assert sorted(new + refused) == sorted(ITEMS)
    assert f.contains_many(ITEMS) == [item in new for item in ITEMS]
    assert f.add_many(new) == [False] * CAPACITY
    for call in (f.add, f.claim):
        with pytest.raises(FilterFullError, match=FULL):
            call("another")


@pytest.mark.parametrize("layout", LAYOUTS)
@for_each("verb", ["add_many", "claim_many", "update", "add_mask", "dedupe"])
def test_a_batch_for_a_full_filter_has_its_rest(
    bloom: Any, client: redis.Redis, layout: str, verb: str
) -> None:
    """As any other that is interrupted, so a program has one error to handle."""
    if layout == "module":
        needs_module(client)
    f = made(bloom, client, layout)
    f.add_many(ITEMS[:CAPACITY])
    more = [f"more {i}" for i in range(5)]
    argument = np.array(more) if verb == "add_mask" else more
    with pytest.raises(BatchInterruptedError, match=FULL) as met:
        list(getattr(f, verb)(argument))  # of `dedupe`; the others raise at once
    assert isinstance(met.value.__cause__, FilterFullError)
    assert (met.value.results, met.value.done, list(met.value.rest)) == ([], 0, more)


def test_a_load_of_segments_stops_at_the_capacity(any_client: redis.Redis) -> None:
    """It reads the bits first, and counts the items before it writes them."""
    f = BloomFilter(any_client, "f", capacity=20_000, error_rate=1e-6, on_full="raise")
    f.update(range(15_000))
    assert f.update(range(15_000)) == 15_000
    assert f.info().count == 15_000
    with pytest.raises(BatchInterruptedError, match="is full") as met:
        f.update(range(100_000))
    assert isinstance(met.value.__cause__, FilterFullError)
    assert (met.value.results, met.value.done) == ([], int(str(met.value).split()[0]))
    assert 15_000 <= met.value.done <= 20_000
    assert f.info().count == 20_000
    assert f.contains_many(range(20_000)) == [True] * 20_000
    assert sum(f.contains_many(range(20_000, 100_000))) < 10


def test_what_a_load_takes_back_is_no_loss(any_server: Server) -> None:
    """A load counts its items before it writes them; if another load was faster, it takes the count back."""
    options: dict[str, Any] = {"capacity": 100_000, "error_rate": 0.001, "on_full": "raise"}
    seen = BloomFilter(any_server.client(), "f", **options)
    counts = []

    def load_too() -> None:
        counts.append(seen.info().count)
        seen.update(range(30_000))
        counts.append(seen.info().count)

    with proxied(any_server.socket) as proxy:
        f = BloomFilter(proxy.client(), "f", **options)
        proxy.plan("or_segment", after(load_too, passed))
        f.update(range(30_000))
    counts.append(seen.info().count)
    assert counts[0] < counts[1] > counts[2] > 29_000


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tasks_that_share_a_call_get_their_own_answers(client: redis.Redis, layout: str) -> None:
    """A caller after a refused item is told the truth about its own."""
    if layout == "module":
        needs_module(client)
    made(BloomFilter, client, layout).add_many(ITEMS[-10:])

    async def run() -> list[Any]:
        pool = client.connection_pool
        kind: Any = redis.asyncio.UnixDomainSocketConnection
        kwargs = {name: pool.connection_kwargs[name] for name in ("path", "db")}
        connected = redis.asyncio.Redis(
            connection_pool=redis.asyncio.ConnectionPool(connection_class=kind, **kwargs)
        )
        async with connected:
            f = made(bloomredis.asyncio.BloomFilter, connected, layout)
            several = [f.add_many(ITEMS[start : start + 10]) for start in range(40, 80, 10)]
            return await asyncio.gather(*map(f.add, ITEMS), *several, return_exceptions=True)

    if "path" not in client.connection_pool.connection_kwargs:
        pytest.skip("fakeredis has no second client")
    answers = asyncio.run(run())
    told = dict(zip(ITEMS, answers, strict=False))
    new = [item for item, answer in told.items() if answer is True]
    assert [told[item] for item in ITEMS[-10:]] == [False] * 10
    for answer, start in zip(answers[len(ITEMS) :], range(40, 80, 10), strict=True):
        results = getattr(answer, "results", [] if isinstance(answer, Exception) else answer)
        new += [item for item, is_new in zip(ITEMS[start:], results, strict=False) if is_new]
        if isinstance(answer, BatchInterruptedError):
            assert [*answer.rest] == ITEMS[start + len(results) : start + 10]
    f = made(BloomFilter, client, layout)
    assert len(new) == len({*new}) == CAPACITY - 10
    assert f.info().count == CAPACITY
    assert [item for item, there in zip(ITEMS, f.contains_many(ITEMS), strict=True) if there] == sorted(
        [*new, *ITEMS[-10:]], key=ITEMS.index
    )


def test_threads_that_share_a_filter_stop_together(any_client: redis.Redis) -> None:
    """As tasks do."""
    f = made(BloomFilter, any_client, "blocked")

    def work(worker: int) -> list[bool]:
        new, _ = one_by_one(lambda item: f.add(f"{worker % 4} {item}"))
        return [item in new for item in ITEMS]

    told = race_threads(work, 8)
    assert sum(map(sum, told)) == f.info().count == CAPACITY


def add_all(url: str, items: Sequence[str], worker: int) -> list[bool]:
    with redis.Redis.from_url(url) as client:
        f = made(BloomFilter, client, "blocked")
        if worker % 2:
            new, _ = one_by_one(f.add)
        else:
            try:
                answers = f.add_many(items)
            except BatchInterruptedError as error:
                answers = error.results
            except FilterFullError:
                answers = []
            new = [item for item, is_new in zip(items, answers, strict=False) if is_new]
        return [item in new for item in items]


def test_processes_stop_together(any_server: Server) -> None:
    """Four processes add as many items as there is room for, and each item has one winner."""
    told = race_processes(add_all, any_server.url, ITEMS, 4)
    wins = Counter(item for answers in told for item, won in zip(ITEMS, answers, strict=True) if won)
    f = made(BloomFilter, any_server.client(), "blocked")
    assert set(wins.values()) == {1}
    assert sorted(wins) == sorted(item for item in ITEMS if item in f)
    assert f.info().count == len(wins) == CAPACITY


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_lost_reply_at_the_capacity(any_server: Server, layout: str) -> None:
    """The last item that fits is told by the retry, whoever fills the filter meanwhile."""
    client = any_server.client()
    if layout == "module":
        needs_module(client)
    with proxied(any_server.socket) as proxy:
        f = made(BloomFilter, proxy.client(retries=1), layout)
        f.add_many(ITEMS[: CAPACITY - 1])
        f.add(ITEMS[0])  # the server knows the script from now on
        proxy.plan("add", lost, lost)
        with pytest.raises(OutcomeUnknownError) as met:
            f.add("last")
        with pytest.raises(FilterFullError):
            f.add("another")
        assert f.add("last", token=met.value.token)
        assert not f.add("last")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_lost_reply_behind_a_refused_item(any_server: Server, layout: str) -> None:
    """A shared call asks again for an item that an earlier call may have added."""
    client = any_server.client()
    if layout == "module":
        needs_module(client)
    made(BloomFilter, client, layout).add_many(ITEMS[: CAPACITY - 2])

    async def run() -> list[Any]:
        async with proxy.asyncio_client(retries=1) as connected:
            f = made(bloomredis.asyncio.BloomFilter, connected, layout)
            assert not await f.add(ITEMS[0])  # the server knows the script from now on
            proxy.plan("add", lost, lost)
            with pytest.raises(OutcomeUnknownError):
                await f.add("pending")
            assert await f.add("last")
            calls = [f.add(item) for item in ("first", "refused", "pending", "last", "pending")]
            return await asyncio.gather(*calls, return_exceptions=True)

    with proxied(any_server.socket) as proxy:
        first, refused, *others = asyncio.run(run())
    assert isinstance(first, FilterFullError)
    assert isinstance(refused, FilterFullError)
    assert others == [True, False, False]


def test_a_short_reply_is_kept_for_the_retry(any_server: Server) -> None:
    """A batch of which a part fitted hears the same after its reply was lost."""
    with proxied(any_server.socket) as proxy:
        f = made(BloomFilter, proxy.client(), "blocked")
        f.add_many(ITEMS[:40])
        proxy.plan("add", lost)
        with pytest.raises(BatchInterruptedError) as met:
            f.add_many(ITEMS[30:])
        assert isinstance(met.value.__cause__, OutcomeUnknownError)
        new, rest = interrupted(list(met.value.rest), f.add_many)
        assert (new, rest) == (ITEMS[40:50], ITEMS[50:])


def test_the_commit_of_a_held_claim_is_never_refused(bloom: Any, client: redis.Redis) -> None:
    """So the count may pass the capacity, by the claims that were held when the filter became full."""
    f = made(bloom, client, "blocked")
    claims = f.claim_many(ITEMS[:CAPACITY])
    f.add_many(f"another {number}" for number in range(CAPACITY))
    assert f.commit_many(claims) == ["done"] * CAPACITY
    assert f.info().count == 2 * CAPACITY
    assert f.claim(ITEMS[0]).state == "done"


def test_the_caller_of_a_held_claim_is_not_refused(any_client: redis.Redis) -> None:
    """A repeated claim, one of the same owner and one that is busy are answered as before."""
    f = made(BloomFilter, any_client, "blocked")
    f.claim("mine", owner="rank 1")
    f.add_many(ITEMS[:CAPACITY])
    assert f.claim("mine", owner="rank 2").state == "busy"
    assert f.claim("mine", owner="rank 1").state == "claimed"


def test_a_pipeline_has_the_refusal_in_its_place(any_client: redis.Redis) -> None:
    """Only for an object that refuses: another passes the capacity."""
    f = made(BloomFilter, any_client, "blocked")
    f.add_many(ITEMS[:CAPACITY])
    pipe = any_client.pipeline(transaction=False)
    for item in (ITEMS[0], "more"):
        f.queue_add(pipe, item)
    known, refused = pipe.execute(raise_on_error=False)
    assert known == 0
    assert str(refused).startswith("BLOOMFULL")
    BloomFilter(any_client, "f", capacity=CAPACITY, error_rate=1e-6).queue_add(pipe, "more")
    assert pipe.execute() == [1]


def test_a_merge_may_pass_the_capacity(any_client: redis.Redis) -> None:
    """The bits of a merged filter are there already, so all are counted."""
    f, other = (
        BloomFilter(any_client, name, capacity=CAPACITY, error_rate=1e-6, on_full="raise") for name in "fg"
    )
    f.add_many(ITEMS[:40])
    other.add_many(ITEMS[30:])
    f.merge(other)
    assert f.info().count > CAPACITY
    with pytest.raises(FilterFullError):
        f.add("more")


@for_each("kind", ["CountingBloomFilter", "ShardedBloomFilter", "ScalingBloomFilter"])
def test_other_kinds_have_no_such_option(bloom: Any, kind: str) -> None:
    """Their constructors say so."""
    with pytest.raises(TypeError, match="'on_full'; it is for a BloomFilter"):
        bloom(redis.Redis(port=1), "f", kind=kind, capacity=10, error_rate=0.1, on_full="raise")
