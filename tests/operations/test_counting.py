"""A filter that counts: what was added is found until it has been removed as often."""

from __future__ import annotations

import asyncio
import inspect
import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from redis.backoff import NoBackoff
from redis.retry import Retry

import bloomredis
import bloomredis.asyncio
from bloomredis import CountingBloomFilter, FilterLostError, FilterMismatchError, OutcomeUnknownError
from bloomredis.bits import limits
from bloomredis.bits.classic import Counting
from bloomredis.operations.counting import CountingOperations
from bloomredis.protocol import scripts
from bloomredis.stored import header, planning
from tests.stored.test_header import as_header
from tests.support.losing import LosingClient, losing
from tests.support.racing import race_processes, race_threads
from tests.support.servers import Server

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "counting.json").read_text())
MOST = 15


def make(bloom: Any, client: Any, name: str = "seen", **options: Any) -> Any:
    options = {"capacity": 1000, "error_rate": 1e-6} | options
    return bloom(client, name, kind="CountingBloomFilter", **options)


def stored_counters(client: Any) -> dict[int, int]:
    """Return the counters that are not 0, by their numbers."""
    pairs: bytes = client.getrange("seen", limits.HEADER_BYTES, -1)
    values = [half for pair in pairs for half in (pair >> 4, pair & 15)]
    return {number: value for number, value in enumerate(values) if value}


def expected_counters(layout: Counting, items: Counter[Any]) -> dict[int, int]:
    """Return what the counters should be when none has been at 15."""
    counters: Counter[int] = Counter()
    for item, times in items.items():
        counters.update({counter: times for counter in set(layout.offsets(item)) if times})
    return dict(counters)


PLANNED = planning.plan_counting(1000, 1e-6)


def test_an_item_is_in_until_it_is_removed(bloom: Any, client: redis.Redis) -> None:
    """Added once, removed once; a second removal is refused."""
    f = make(bloom, client)
    assert f.add("a")
    assert f.remove("a")
    assert "a" not in f
    assert not f.remove("a")
    assert f.add("a")


def test_every_add_counts(bloom: Any, client: redis.Redis) -> None:
    """An item that was added twice and removed once is in; info counts adds less removals."""
    f = make(bloom, client)
    assert f.add_many(["a", "b", "a"]) == [True, True, False]
    assert not f.add("a")
    assert f.info().count == 4
    assert [f.remove("a") for _ in range(4)] == [True, True, True, False]
    assert f.contains_many(["a", "b"]) == [False, True]
    assert f.info().count == 1


def test_a_refused_removal_changes_nothing(bloom: Any, client: redis.Redis) -> None:
    """What is not in leaves every byte as it was."""
    f = make(bloom, client)
    f.add("a")
    before = client.get("seen")
    assert not f.remove("b")
    assert client.get("seen") == before


def test_a_full_counter_stays(bloom: Any, client: redis.Redis) -> None:
    """Beyond 15 nobody knows how often, so nothing that shares the counter is ever missed."""
    f = make(bloom, client, capacity=1, error_rate=0.5)
    assert f.info().num_bits == 2
    f.add_many(["a"] * 20 + ["b"] * 20 + ["c"])
    assert all(f.remove("a") for _ in range(30))
    assert f.contains_many(["a", "b", "c"]) == [True] * 3
    assert set(stored_counters(client).values()) == {MOST}
    assert f.info().count == 11


def test_the_count_never_goes_below_nothing(bloom: Any, client: redis.Redis) -> None:
    """More removals than adds, which a full counter lets through, count for no more than the adds."""
    f = make(bloom, client, capacity=1, error_rate=0.5)
    f.add_many(["a"] * 20)
    assert all(f.remove("a") for _ in range(25))
    assert f.info().count == 0


def test_fifteen_adds_are_the_most_that_can_be_undone(bloom: Any, client: redis.Redis) -> None:
    """After 14 the last removal takes the item out."""
    f = make(bloom, client)
    f.add_many(["a"] * 14)
    assert all(f.remove("a") for _ in range(14))
    assert stored_counters(client) == {}


def test_repeated_probes_are_one_counter(bloom: Any, client: redis.Redis) -> None:
    """An item whose probes meet in a counter raises and lowers it once."""
    f = make(bloom, client, capacity=2, error_rate=0.001)
    layout = planning.plan_counting(2, 0.001)
    items = [i for i in range(50) if len(set(layout.offsets(i))) < layout.num_hashes]
    assert items
    f.add(items[0])
    assert stored_counters(client) == expected_counters(layout, Counter([items[0]]))
    assert f.remove(items[0])
    assert stored_counters(client) == {}


def test_info_describes_the_filter(bloom: Any, client: redis.Redis) -> None:
    """Fill and estimate go by the share of counters that are not 0."""
    f = make(bloom, client, capacity=1000, error_rate=0.01)
    f.add_many([*range(1000), *range(1000)])
    info = f.info()
    assert (info.layout, info.num_bits, info.num_hashes) == ("classic", 9586, 7)
    assert info.size_bytes == client.strlen("seen") == 64 + 9586 // 2
    assert info.count == 2000
    assert info.fill_ratio == len(stored_counters(client)) / 9586 == pytest.approx(0.518, abs=0.02)
    assert info.approximate_count == f.approximate_count() == pytest.approx(1000, rel=0.03)
    assert info.estimated_error_rate == pytest.approx(0.01, rel=0.3)


def test_info_of_a_large_filter(client: redis.Redis) -> None:
    """The counters are read in pieces, on a client that decodes replies as well."""
    f = CountingBloomFilter(client, "seen", capacity=100_000, error_rate=0.01)
    f.add_many(range(2000))
    assert f.approximate_count() == pytest.approx(2000, rel=0.03)
    client.connection_pool.connection_kwargs["decode_responses"] = True
    client.connection_pool.disconnect()
    try:
        assert f.approximate_count() == pytest.approx(2000, rel=0.03)
    finally:
        client.connection_pool.connection_kwargs["decode_responses"] = False
        client.connection_pool.disconnect()


def test_the_other_calls(bloom: Any, client: redis.Redis) -> None:
    """Batches, dedupe, load, claims, pipelines, expiry and clearing are those of every filter."""
    f = make(bloom, client)
    assert list(f.dedupe(["a", "b", "a"])) == ["a", "b"]
    assert f.load(range(300)) == 300
    claim = f.claim("c")
    bloom.wait(claim.commit())
    assert f.claim("c").state == "done"
    with client.pipeline() as pipe:
        make(bloom, client)
        CountingBloomFilter(client, "seen").queue_add(pipe, "c")
        CountingBloomFilter(client, "seen").queue_contains(pipe, "x")
        assert pipe.execute() == [0, 0]
    assert [f.remove("c") for _ in range(3)] == [True, True, False]
    assert f.info().count == 303
    f.expire(100)
    assert 0 < f.info().ttl <= 100
    f.clear()
    assert f.info().count == 0
    assert not f.remove("a")
    assert f.delete()


def test_a_copy_is_refused(bloom: Any, client: redis.Redis) -> None:
    """What a copy says is there might have been removed."""
    with pytest.raises(TypeError, match="may have been removed"):
        make(bloom, client).snapshot()
    with pytest.raises(TypeError, match="local_cache"):
        make(bloom, client, local_cache=True)
    with pytest.raises(TypeError, match="layout"):
        make(bloom, client, layout="blocked")


def test_a_lost_filter_is_noticed(bloom: Any, client: redis.Redis) -> None:
    """A removal from what is gone is no "was not in"."""
    f = make(bloom, client)
    f.add("a")
    client.delete("seen")
    with pytest.raises(FilterLostError):
        f.remove("a")


@pytest.mark.parametrize(("stored", "wanted"), [("BloomFilter", "Counting"), ("CountingBloomFilter", "")])
def test_another_kind_is_a_mismatch(bloom: Any, client: redis.Redis, stored: str, wanted: str) -> None:
    """The message names the class to use, and the filter stays as it is."""
    size: dict[str, Any] = {"capacity": 100, "error_rate": 0.01}
    bloom(client, "seen", kind=stored, **size).add("a")
    before = client.get("seen")
    f = bloom(client, "seen", kind=f"{wanted}BloomFilter", **size)
    for call in (f.reserve, lambda: f.add("b"), f.clear, f.delete):
        with pytest.raises(FilterMismatchError, match=f"that of a {stored}, not of a {wanted}BloomFilter"):
            call()
    with pytest.raises(FilterMismatchError, match=f"that of a {stored}"):
        bloom.open(client, "seen", kind=f"{wanted}BloomFilter")
    assert client.get("seen") == before
    assert "a" in bloom.open(client, "seen", kind=stored)


def test_other_parameters_are_a_mismatch(bloom: Any, client: redis.Redis) -> None:
    """The message names the class that opens what is stored."""
    make(bloom, client).add("a")
    with pytest.raises(FilterMismatchError, match=r"1000, not 2000.*CountingBloomFilter\.open"):
        make(bloom, client, capacity=2000).add("a")


def test_the_largest_filter() -> None:
    """A key holds a quarter as many counters as bits, and the message says so."""
    most = (2**32 - 512) // 4
    assert planning.plan_counting(most * 69 // 1000, 0.001).num_bits < most
    with pytest.raises(ValueError, match=rf"counters of 4 bits; one key holds at most {most}"):
        planning.plan_counting(most * 70 // 1000, 0.001)


def test_both_drivers_have_the_same_face() -> None:
    """Equal names and docstrings."""
    ours, theirs = CountingBloomFilter, bloomredis.asyncio.CountingBloomFilter
    assert vars(ours).keys() == vars(theirs).keys()
    assert inspect.getdoc(ours) == inspect.getdoc(theirs)
    assert inspect.getdoc(ours.remove) == inspect.getdoc(theirs.remove)
    assert inspect.signature(ours.remove) == inspect.signature(theirs.remove)
    assert inspect.signature(ours).parameters.keys() == inspect.signature(theirs).parameters.keys()


def test_the_wrong_client_is_refused() -> None:
    """Each driver names the other's class."""
    with pytest.raises(TypeError, match=r"use bloomredis\.asyncio\.CountingBloomFilter"):
        CountingBloomFilter(redis.asyncio.Redis(), "seen")
    with pytest.raises(TypeError, match=r"use bloomredis\.CountingBloomFilter"):
        bloomredis.asyncio.CountingBloomFilter(redis.Redis(), "seen")


# -- the format


@pytest.mark.parametrize("case", VECTORS["headers"])
def test_golden_headers(case: dict[str, Any]) -> None:
    """Each vector packs to its bytes, and is read back as a filter that counts and as no other."""
    data = bytes.fromhex(case["hex"])
    assert as_header(case["fields"]).pack() == data
    assert header.parse(data, header.COUNTING) == as_header(case["fields"])
    assert isinstance(planning.stored(header.parse(data, header.COUNTING)), Counting)
    with pytest.raises(ValueError, match="that of a CountingBloomFilter"):
        header.parse(data)


@pytest.mark.parametrize(
    ("at", "byte", "complaint"), [(7, 2, "no filter"), (9, 1, "no filter"), (11, 1, "options 0100000000")]
)
def test_a_damaged_header_is_refused(at: int, byte: int, complaint: str) -> None:
    """Only the classic layout has counters."""
    good = bytes.fromhex(VECTORS["headers"][0]["hex"])
    with pytest.raises(ValueError, match=complaint):
        header.parse(good[:at] + bytes([byte]) + good[at + 1 :], header.COUNTING)


def test_too_many_counters_are_refused() -> None:
    """More than fit into a string make no filter."""
    good = bytes.fromhex(VECTORS["headers"][0]["hex"])
    with pytest.raises(ValueError, match="num_bits"):
        header.parse(good[:16] + (2**30).to_bytes(8) + good[24:], header.COUNTING)


@pytest.mark.parametrize("case", VECTORS["counters"])
def test_golden_counters(client: redis.Redis, case: dict[str, Any]) -> None:
    """Adds and removals leave the bytes of the vector."""
    f = CountingBloomFilter(client, "seen", capacity=case["capacity"], error_rate=case["error_rate"])
    f.add_many(bytes.fromhex(item) for item in case["added"])
    assert all(f.remove(bytes.fromhex(item)) for item in case["removed"])
    stored: Any = client.getrange("seen", 64, -1)
    assert stored.hex() == case["hex"]


# -- lost replies


@pytest.fixture
def lossy(client: redis.Redis) -> LosingClient:
    """A client whose filter exists, with "a" in it twice, and whose scripts are known."""
    made = LosingClient(client)
    f = counting(made)
    f.add_many(["a", "a", "x"])
    assert f.remove("x")
    return made


def counting(client: Any, **options: Any) -> CountingBloomFilter:
    return CountingBloomFilter(client, "seen", capacity=1000, error_rate=1e-6, **options)


def assert_counted(lossy: LosingClient, *items: str) -> None:
    """Check the counters, and the count, against what should be in."""
    assert stored_counters(lossy.client) == expected_counters(PLANNED, Counter(items))
    assert counting(lossy.client).info().count == len(items)


@pytest.mark.parametrize("verb", ["add", "remove"])
def test_the_same_bytes_count_once(lossy: LosingClient, verb: str) -> None:
    """What redis-py re-sends after a lost reply is answered as at first, and changes nothing."""
    assert getattr(counting(lossy), verb)("a") == (verb == "remove")
    again = lossy.client.execute_command(*lossy.sent[-1])
    assert again == (verb == "remove")
    assert_counted(lossy, *("a" * (3 if verb == "add" else 1)))


def test_a_refused_removal_stays_refused(lossy: LosingClient) -> None:
    """Sent again after somebody else's add it takes nothing away."""
    f = counting(lossy)
    assert not f.remove("b")
    assert counting(lossy.client).add("b")
    assert lossy.client.execute_command(*lossy.sent[-1]) == 0
    assert_counted(lossy, "a", "a", "b")


@pytest.mark.parametrize("verb", ["add", "remove"])
def test_a_copy_that_comes_late_is_refused(lossy: LosingClient, verb: str) -> None:
    """A call that arrives again when its lane has gone on is executed no second time."""
    f = counting(lossy)
    getattr(f, verb)("a")
    late = lossy.sent[-1]
    f.add("b")
    f.remove("b")
    before = lossy.client.get("seen")
    with pytest.raises(redis.ResponseError, match="has gone on"):
        lossy.client.execute_command(*late)
    assert lossy.client.get("seen") == before


@pytest.mark.parametrize("fate", ["lost", "never"])
@pytest.mark.parametrize("verb", ["add", "remove"])
@pytest.mark.parametrize("way", ["again", "by token"])
def test_a_call_without_an_answer_counts_once(lossy: LosingClient, verb: str, fate: str, way: str) -> None:
    """Executed or not: called again it is answered, it has counted once, and no copy of it counts."""
    f = counting(lossy)
    f.reserve()
    lossy.lose = [fate, fate]
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError) as caught:
            getattr(f, verb)("a")
    copies = lossy.sent[1:]
    token = caught.value.token if way == "by token" else None
    asked = counting(lossy.client) if token else f
    assert getattr(asked, verb)("a", token=token) == (verb == "remove")
    for copy in copies:
        lossy.client.execute_command(*copy)
    assert_counted(lossy, *("a" * (3 if verb == "add" else 1)))


@pytest.mark.parametrize("fate", ["lost", "never"])
def test_the_rest_of_a_batch_counts_once(lossy: LosingClient, fate: str) -> None:
    """Of equal items in a batch without an answer each is owed its own."""
    f = counting(lossy)
    f.reserve()
    lossy.lose = [fate]
    batch = ["b", "c", "b", "a", "b"]
    with pytest.raises(bloomredis.BatchInterruptedError) as caught:
        f.add_many(batch)
    copy = lossy.sent[-1]
    assert f.add_many(caught.value.rest) == [True, True, False, False, False]
    lossy.client.execute_command(*copy)
    assert_counted(lossy, "a", "a", *batch)


@pytest.mark.parametrize("executed", [(True, True), (False, True), (True, False), (False, False)])
def test_each_of_two_calls_is_owed_its_own_answer(client: redis.Redis, executed: tuple[bool, bool]) -> None:
    """Two concurrent removals without an answer are two removals, executed or not."""
    f = counting(client)
    f.add_many(["a", "a", "a"])
    operations = f._operations
    assert isinstance(operations, CountingOperations)
    receipts, opened = operations._removals, operations._stored.handle
    assert opened
    packed = opened.layout.pack_one(b"a")
    lanes = [receipts.take(), receipts.take()]
    for lane, done in zip(lanes, executed, strict=True):
        receipts.doubt(["a"], lane.name, lane.next_call())
        if done:
            client.eval(scripts.load("remove").text, 2, f.name, lane.key, opened.identity, packed, 1)
    assert [f.remove("a") for _ in range(2)] == [True, True]
    assert stored_counters(client) == expected_counters(PLANNED, Counter("a"))


@pytest.mark.parametrize("fate", ["lost", "never"])
def test_a_removal_settles_an_add_in_doubt(lossy: LosingClient, fate: str) -> None:
    """An add without an answer counts once before the removal; the next add is another one."""
    f = counting(lossy)
    f.reserve()
    lossy.lose = [fate]
    with pytest.raises(OutcomeUnknownError) as caught:
        f.add("b")
    copy = lossy.sent[-1]
    assert f.remove("b")
    assert_counted(lossy, "a", "a")
    assert f.add("b", token=caught.value.token)  # what that call did, and nothing more
    lossy.client.execute_command(*copy)
    assert_counted(lossy, "a", "a")
    assert f.add("b")
    assert_counted(lossy, "a", "a", "b")


def test_settling_may_fail(lossy: LosingClient) -> None:
    """Then nothing was removed, the error has no token, and a second call goes on."""
    f = counting(lossy)
    f.reserve()
    lossy.lose = ["lost", "lost"]
    for call in (f.add, f.remove):
        with pytest.raises(OutcomeUnknownError) as caught:
            call("b")
    assert caught.value.token is None
    assert f.remove("b")
    assert_counted(lossy, "a", "a")


@pytest.mark.parametrize("fate", ["lost", "never"])
def test_an_add_leaves_a_removal_in_doubt(lossy: LosingClient, fate: str) -> None:
    """Its second call is still the same removal, and takes nothing of what was added meanwhile."""
    f = counting(lossy)
    f.reserve()
    lossy.lose = [fate]
    with pytest.raises(OutcomeUnknownError):
        f.remove("a")
    assert not f.add("a")
    assert f.remove("a")
    assert_counted(lossy, "a", "a")


@pytest.mark.parametrize("emptied", ["clear", "delete"])
def test_a_doubt_ends_with_the_filter(lossy: LosingClient, emptied: str) -> None:
    """What was in doubt before this object emptied the filter is no answer after it."""
    f = counting(lossy)
    f.reserve()
    lossy.lose = ["lost", "lost"]
    for call, item in ((f.add, "b"), (f.remove, "a")):
        with pytest.raises(OutcomeUnknownError):
            call(item)
    getattr(f, emptied)()
    assert f.add("b")
    assert not f.remove("a")
    assert_counted(lossy, "b")


def test_tokens_are_of_one_kind(lossy: LosingClient) -> None:
    """An add does not take a removal's token, nor the other way round."""
    f = counting(lossy)
    f.reserve()
    for call, other, item in ((f.add, f.remove, "b"), (f.remove, f.add, "c")):
        lossy.lose = ["lost"]
        with pytest.raises(OutcomeUnknownError) as caught:
            call(item)
        with pytest.raises(ValueError, match="of this call"):
            other(item, token=caught.value.token)


def test_without_receipts_a_lost_reply_is_told(lossy: LosingClient) -> None:
    """With retry_safe=False there is no token, and a second removal is another one."""
    f = counting(lossy, retry_safe=False)
    f.reserve()
    lossy.lose = ["lost"]
    with pytest.raises(OutcomeUnknownError) as caught:
        f.remove("a")
    assert caught.value.token is None
    assert f.remove("a")
    assert_counted(lossy)


def test_a_pickled_filter_removes(client: redis.Redis) -> None:
    """With lanes of its own, marked like those of the original."""
    f = counting(client)
    f.add_many(["a", "a"])
    copy = pickle.loads(pickle.dumps(f)).with_client(client)  # noqa: S301 - it was made right here
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


@pytest.mark.parametrize("retries", RETRIES)
def test_lost_replies_change_no_counter(server: Server, retries: str) -> None:
    """With a reply in ten lost, adds and removals leave exactly the counters that they should."""
    with losing(server.socket, share=0.1) as proxy, server.client() as direct:
        counting(direct).reserve()
        with redis.Redis(port=proxy.port, **RETRIES[retries]) as client:
            f = counting(client)
            for verb, item in CALLS:
                answered(getattr(f, verb), item)
        assert proxy.lost > 20
        assert stored_counters(direct) == expected_counters(PLANNED, balance(CALLS))


def answered(call: Callable[[str], bool], item: str) -> None:
    """Call until there is an answer, as a caller does who has read the documentation."""
    while True:
        try:
            call(item)
        except (OutcomeUnknownError, redis.ConnectionError):  # the latter while nothing is in doubt
            continue
        return


def test_lost_replies_of_tasks_change_no_counter(server: Server) -> None:
    """The same for tasks whose adds of equal items travel together."""
    calls = [("add", f"{i % 100}") for i in range(300)] + [("remove", f"{i % 100}") for i in range(200)]

    async def main(port: int) -> None:
        none = redis.asyncio.retry.Retry(NoBackoff(), 0)
        async with redis.asyncio.Redis(port=port, retry=none) as client:
            f = bloomredis.asyncio.CountingBloomFilter(client, "seen", capacity=1000, error_rate=1e-6)

            async def until_answered(verb: str, item: str) -> None:
                while True:
                    try:
                        await getattr(f, verb)(item)
                    except (OutcomeUnknownError, redis.ConnectionError):
                        continue
                    return

            for some in (calls[:300], *(calls[start : start + 50] for start in range(300, 500, 50))):
                await asyncio.gather(*(until_answered(*call) for call in some))  # at most 100 connections

    with losing(server.socket, share=0.2) as proxy, server.client() as direct:
        counting(direct).reserve()
        asyncio.run(main(proxy.port))
        assert proxy.lost > 20
        assert stored_counters(direct) == expected_counters(PLANNED, balance(calls))


# -- races

ITEMS = [f"item-{i}" for i in range(200)]


def add_and_remove(f: CountingBloomFilter, items: Sequence[str], worker: int) -> list[bool]:
    """Add all items, in this worker's order; remove those of which it may, one by one."""
    turned = [*items[worker * 30 :], *items[: worker * 30]]
    new = dict(zip(turned, f.add_many(turned), strict=True))
    assert all(f.remove(item) for item in turned[worker::3])
    return [new[item] for item in items]


def in_a_process(url: str, items: Sequence[str], worker: int) -> list[bool]:
    with redis.Redis.from_url(url) as client:
        return add_and_remove(counting(client), items, worker)


def left(items: Sequence[str], workers: int) -> Counter[str]:
    """Return what those workers leave in."""
    found = Counter(dict.fromkeys(items, workers))
    for worker in range(workers):
        found.subtract([*items[worker * 30 :], *items[: worker * 30]][worker::3])
    return found


def test_threads_add_and_remove(server: Server) -> None:
    """What many threads leave is what they added less what they removed, their calls travelling together."""
    with server.client() as client:
        f = counting(client, coalesce=True)
        race_threads(lambda worker: add_and_remove(f, ITEMS, worker), 4)
        assert stored_counters(client) == expected_counters(PLANNED, left(ITEMS, 4))


def test_processes_add_and_remove(server: Server) -> None:
    """So it is with processes; each item was new at least once."""
    with server.client() as client:
        counting(client).reserve()
        told = race_processes(in_a_process, server.url, ITEMS, 3)
        assert all(map(any, zip(*told, strict=True)))
        assert stored_counters(client) == expected_counters(PLANNED, left(ITEMS, 3))


def test_one_of_many_adds_is_new(server: Server) -> None:
    """Of concurrent adds of an item that is not in, one is told so."""
    with server.client() as client:
        f = counting(client)
        told = race_threads(lambda _: f.add_many(ITEMS), 4)
        assert all(sum(answers) == 1 for answers in zip(*told, strict=True))


# -- how often it errs


def test_the_rate_at_capacity(any_server: Server) -> None:
    """It is 0.9 to 1.1 times the one asked for, also when as much again was added and removed."""
    false_positives = probes = 0
    with any_server.client() as client:
        for number in range(8):
            f = CountingBloomFilter(client, f"rate-{number}", capacity=1000, error_rate=0.01)
            f.add_many(f"{number}-{i}" for i in range(1500))
            assert all(f.remove(f"{number}-{i}") for i in range(500))
            false_positives += sum(f.contains_many(f"{number}-out-{i}" for i in range(40_000)))
            probes += 40_000
    assert 0.9 <= false_positives / probes / 0.01 <= 1.1


# -- a model

FEW = [f"{i}" for i in range(8)]
WORKERS = st.sampled_from([0, 1])
ANY = st.sampled_from(FEW)
TINY: dict[str, Any] = {"capacity": 5, "error_rate": 0.2}


class Machine(RuleBasedStateMachine):
    """Two workers on one filter with so few counters that its items share them and fill them."""

    def __init__(self, bloom: Any, client: redis.Redis) -> None:
        super().__init__()
        self.bloom = bloom
        self.client = client
        self.layout = planning.plan_counting(**TINY)

    @initialize()
    def begin(self) -> None:
        self.client.flushall()
        self.filters = [make(self.bloom, self.client, **TINY) for _ in range(2)]
        self.filters[0].reserve()
        self.items: Counter[str] = Counter()
        self.counters = [0] * self.layout.num_bits

    def raised(self, item: str) -> bool:
        """Count an item in the model; say whether it was new."""
        own = set(self.layout.offsets(item))
        new = any(self.counters[counter] == 0 for counter in own)
        for counter in own:
            self.counters[counter] = min(MOST, self.counters[counter] + 1)
        self.items[item] += 1
        return new

    @rule(worker=WORKERS, item=ANY)
    def add(self, worker: int, item: str) -> None:
        assert self.filters[worker].add(item) == self.raised(item)

    @rule(worker=WORKERS, batch=st.lists(ANY, max_size=3), times=st.sampled_from([1, 2, 9]))
    def add_many(self, worker: int, batch: list[str], times: int) -> None:
        answers = self.filters[worker].add_many(batch * times)
        assert answers == [self.raised(item) for item in batch * times]

    @rule(worker=WORKERS, item=ANY)
    def commit(self, worker: int, item: str) -> None:
        claim = self.filters[worker].claim(item)
        if claim:
            self.bloom.wait(claim.commit())
            self.raised(item)

    @rule(worker=WORKERS, item=ANY)
    def remove(self, worker: int, item: str) -> None:
        if not self.items[item]:
            if not self.filters[worker].contains(item):  # else it could not be told from one that is in
                assert not self.filters[worker].remove(item)
            return
        assert self.filters[worker].remove(item)
        self.items[item] -= 1
        for counter in set(self.layout.offsets(item)):
            self.counters[counter] -= self.counters[counter] < MOST

    @rule()
    def clear(self) -> None:
        self.filters[0].clear()
        self.filters[1].reserve()
        self.items.clear()
        self.counters = [0] * self.layout.num_bits

    @invariant()
    def nothing_is_missed(self) -> None:
        found = self.filters[1].contains_many(FEW)
        assert all(there for item, there in zip(FEW, found, strict=True) if self.items[item])
        assert found == [all(self.counters[at] for at in self.layout.offsets(item)) for item in FEW]

    @invariant()
    def the_counters_are_exact(self) -> None:
        assert stored_counters(self.client) == {i: n for i, n in enumerate(self.counters) if n}
        count: Any = self.client.getrange("seen", 56, 63)
        assert int.from_bytes(count) == self.items.total()


def test_a_model_agrees(bloom: Any, client: redis.Redis) -> None:
    """Whatever is added and removed, in any order: never a false negative, and every counter is right."""
    run_state_machine_as_test(
        lambda: Machine(bloom, client),  # type: ignore[arg-type]  # any factory, says its documentation
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
