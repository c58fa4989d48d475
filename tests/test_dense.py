"""Dense batches go as whole segments, and no answer differs from those of single probes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import redis

from bloomredis import (
    BatchInterruptedError,
    BloomFilter,
    CountingBloomFilter,
    FilterLostError,
    OutcomeUnknownError,
    RotatingBloomFilter,
    ScalingBloomFilter,
    ServerRefusedError,
    ShardedBloomFilter,
    bulk,
    compat,
    dense,
    scripts,
)
from tests.losing import losing
from tests.racing import race_processes, race_threads, winners
from tests.servers import Server
from tests.test_receipts import Losing
from tests.test_refusals import _describe, attach, replicated

ITEMS = [f"item-{i}" for i in range(3000)]
MIXED = random.Random(1).choices(ITEMS, k=3000)  # some twice and more, a third of ITEMS not at all
FILTERS: dict[str, dict[str, Any]] = {
    "three segments": {"capacity": 20_000, "error_rate": 1e-3},
    "one segment, two blocks an item": {"capacity": 3900, "error_rate": 1e-6, "layout": "blocked"},
    "one segment, classic": {"capacity": 3900, "error_rate": 1e-6, "layout": "classic"},
}
VERBS = {text: verb for verb in scripts.verbs() for s in [scripts.load(verb)] for text in (s.sha, s.text)}


class Meddling(Losing):
    """A client that does something else before it sends a script, of which `meddle` is told the verb."""

    def __init__(self, client: redis.Redis, meddle: Callable[[str], object] = bool) -> None:
        super().__init__(client)
        self.meddle = meddle

    def execute_command(self, *command: Any, **options: Any) -> Any:
        self.meddle(VERBS.get(command[1], ""))
        return super().execute_command(*command, **options)

    @property
    def verbs(self) -> list[str]:
        """The verbs of the scripts that were sent."""
        return [VERBS[command[1]] for command in self.sent if command[1] in VERBS]


def model(items: Sequence[str], known: set[str]) -> list[bool]:
    """Return what is to be told of each item; `known` knows all of them afterwards."""
    told = []
    for item in items:
        told.append(item not in known)
        known.add(item)
    return told


def make(client: Any, kind: str = "three segments", **options: Any) -> BloomFilter:
    return BloomFilter(client, "seen", **FILTERS[kind], **options)


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments are small, and dense from some 50 items on: a filter of 40 KB has three."""
    monkeypatch.setattr(bulk, "SEGMENT_BYTES", 16_384)
    monkeypatch.setattr(dense, "DENSE", 150)


@pytest.fixture
def watched(client: redis.Redis) -> Meddling:
    """A client whose filter exists, and whose server knows the scripts."""
    for verb in scripts.verbs():
        client.script_load(scripts.load(verb).text)
    make(client).reserve()
    return Meddling(client)


# -- answers


@pytest.mark.parametrize("options", [{}, {"local_cache": True}, {"coalesce": True}], ids=str)
@pytest.mark.parametrize("kind", FILTERS)
def test_every_answer_is_exact(bloom: Any, client: redis.Redis, kind: str, options: dict[str, Any]) -> None:
    """New, known before, and repeated in the batch: as a set would tell."""
    known: set[str] = set()
    f = bloom(client, "seen", **FILTERS[kind], **options)
    for batch in (ITEMS[:600], MIXED[:2000], MIXED, ITEMS, ITEMS):
        assert f.add_many(batch) == model(batch, known)


@pytest.mark.parametrize("kind", FILTERS)
def test_the_filter_is_as_by_single_probes(bloom: Any, client: redis.Redis, kind: str) -> None:
    """Bit for bit; the count too, but for items whose bits others of their batch have set."""
    f, twin = (bloom(client, name, **FILTERS[kind]) for name in ("seen", "twin"))
    for start in (0, 1000, 2000):
        f.add_many(MIXED[start : start + 1000])
    for start in range(0, 3000, 100):
        twin.add_many(MIXED[start : start + 100])
    assert client.getrange("seen", 64, -1) == client.getrange("twin", 64, -1)
    assert f.info().count == pytest.approx(twin.info().count, abs=3)


def test_a_batch_goes_round_by_round(watched: Meddling, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many items at a time that their answers can be owed; the rounds are alike."""
    monkeypatch.setattr(dense, "MOST_ITEMS", 1000)
    assert make(watched).add_many(MIXED) == model(MIXED, set())
    assert watched.verbs[1:] == ["read", "swap"] * 9


def test_lanes_are_used_again(watched: Meddling) -> None:
    """However many batches there are, there are no more receipts than calls in a round."""
    f = make(watched)
    for start in range(0, 3000, 500):
        f.add_many(ITEMS[start : start + 500])
    assert watched.client.dbsize() == 1 + 3


@pytest.mark.parametrize("min_replicas", [0, 1])
def test_bits_are_no_text(bloom: Any, min_replicas: int) -> None:
    """A client with decode_responses=True reads them as they are, also beside a WAIT and in shards."""
    with replicated() as (primary, replica), primary.client(decode_responses=True) as client:
        attach(primary, replica)
        options = {**FILTERS["three segments"], "min_replicas": min_replicas}
        for f in (BloomFilter(client, "seen", **options), ShardedBloomFilter(client, "shards", **options)):
            assert f.add_many(ITEMS) == [True] * 3000
            assert f.add_many(ITEMS) == [False] * 3000


def test_a_batch_waits_for_replicas(bloom: Any) -> None:
    """With none it is interrupted before anything is written, and asked again with one it is all new."""
    with replicated() as (primary, replica), primary.client() as client, replica.client() as other:
        make(client).reserve()
        f = bloom(client, "seen", min_replicas=1, replica_timeout=0.1, layout="blocked")
        f._operations._stored._accept(f._operations._stored.read(_describe(client)).header)
        with pytest.raises(BatchInterruptedError, match="0 of 1 replicas"):
            f.add_many(ITEMS)
        attach(primary, replica)
        assert f.add_many(ITEMS) == [True] * 3000
        assert other.getrange("seen", 64, -1) == client.getrange("seen", 64, -1)


# -- what is sent


def test_a_dense_batch_goes_by_segments(watched: Meddling) -> None:
    """Each is read and written once."""
    make(watched).add_many(ITEMS[:600])
    assert watched.verbs == ["reserve", *["read", "swap"] * 3]


def test_known_items_are_only_read(watched: Meddling) -> None:
    """Nothing is written, so nothing goes to replicas."""
    make(watched).add_many(ITEMS)
    watched.sent.clear()
    assert make(watched).add_many(ITEMS) == [False] * 3000
    assert watched.verbs == ["reserve", *["read"] * 3]


def test_few_new_items_go_by_probes(watched: Meddling) -> None:
    """A segment is not written for them."""
    known = set(ITEMS[:600])
    make(watched).add_many(ITEMS[:600])
    watched.sent.clear()
    assert make(watched).add_many(ITEMS[:630]) == model(ITEMS[:630], known)
    assert watched.verbs == ["reserve", *["read", "add"] * 3]


OTHERS: dict[str, Callable[[Any], Any]] = {
    "a sparse batch": lambda client: BloomFilter(client, "seen", capacity=300_000, error_rate=1e-3),
    "two blocks": lambda client: BloomFilter(client, "seen", capacity=20_000, error_rate=1e-6),
    "classic": lambda client: BloomFilter(client, "seen", capacity=20_000, error_rate=0.01, layout="classic"),
    "not safe to send again": lambda client: make(client, retry_safe=False),
    "a bitmap": lambda client: BloomFilter(client, "seen", layout=compat.go_zero(100_000)),
    "counting": lambda client: CountingBloomFilter(client, "seen", capacity=2000, error_rate=0.01),
    "scaling": lambda client: ScalingBloomFilter(client, "seen", capacity=2000, error_rate=0.01),
    "rotating": lambda client: RotatingBloomFilter(client, "seen", capacity=2000, error_rate=0.01, window=60),
}


@pytest.mark.parametrize("other", OTHERS)
def test_others_go_by_probes(other: str, any_server: Server) -> None:
    """Where bits are spread, a call cannot be repeated, or there is more to do than to set bits."""
    with any_server.client() as client:
        watching = Meddling(client)
        f = OTHERS[other](watching)
        assert sum(f.add_many(ITEMS[:900])) > 800
        f.claim_many(ITEMS[900:])
        assert not {"read", "swap"} & set(watching.verbs)


def test_shards_go_by_segments(any_server: Server) -> None:
    """Each is a plain filter."""
    with any_server.client() as client:
        f = ShardedBloomFilter(client, "seen", capacity=20_000, error_rate=1e-3, shards=2)
        f.add_many(ITEMS[:4])
        client.config_resetstat()
        f.add_many(ITEMS)
        assert client.info("commandstats")["cmdstat_setrange"]["calls"] < 20


# -- others at the same time


def adds_all(url: str, items: Sequence[str], worker: int, *, dense_workers: int) -> list[bool]:
    """Add all items, in one batch or, if this is one of the later workers, in small ones."""
    batch = len(items) if worker < dense_workers else 200
    with redis.Redis.from_url(url) as client:
        f = BloomFilter(client, "race", capacity=1_000_000, error_rate=1e-3)
        return [
            new for start in range(0, len(items), batch) for new in f.add_many(items[start : start + batch])
        ]


def test_processes_have_one_winner_an_item(server: Server) -> None:
    """40,000 items, two processes add them by segments and two by probes."""
    items = [f"https://example.org/page/{i}" for i in range(40_000)]
    with server.client() as client:
        client.config_resetstat()
        told = race_processes(partial(adds_all, dense_workers=2), server.url, items, 4)
    assert winners(told, items) == {1: len(items)}


def test_threads_have_one_winner_an_item(server: Server) -> None:
    """Threads that share one filter object, each with the items in another order."""
    f = make(server.client())

    def work(worker: int) -> list[bool]:
        mixed = random.Random(worker).sample(ITEMS, len(ITEMS))
        told = dict(zip(mixed, f.add_many(mixed), strict=True))
        return [told[item] for item in ITEMS]

    assert winners(race_threads(work, 6), ITEMS) == {1: len(ITEMS)}


def of_the_first_segment(f: BloomFilter) -> list[str]:
    layout = f._operations._stored.opened.bitmap  # type: ignore[union-attr]  # it is open
    return [item for item in ITEMS if layout.offsets(item)[0] < 8 * bulk.SEGMENT_BYTES]


@pytest.mark.parametrize("times", [1, 2])
def test_a_segment_that_others_write_to(watched: Meddling, times: int) -> None:
    """It is read again, and then goes by probes; what others added meanwhile is theirs."""
    f, other = make(watched), make(watched.client)
    f.reserve()
    watched.sent.clear()
    theirs = of_the_first_segment(f)[:times]
    left = iter(theirs)

    def meddle(verb: str) -> None:
        if verb == "swap" and (item := next(left, None)):
            assert other.add(item)

    watched.meddle = meddle
    assert f.add_many(ITEMS) == [item not in theirs for item in ITEMS]
    again = ["read", "swap", "read", "swap"] + ["add"] * (watched.verbs.count("add"))
    assert watched.verbs == again + ["read", "swap"] * 2
    assert ("add" in watched.verbs) == (times == dense.TRIES)
    assert f.info().count == 3000
    assert not any(f.add_many(ITEMS))


# -- faults


def finished(f: BloomFilter, error: BatchInterruptedError) -> list[bool]:
    """Return all answers of a batch that was interrupted and is gone on with."""
    return error.results + f.add_many(error.rest)


@pytest.mark.parametrize("fate", ["lost", "never"])
@pytest.mark.parametrize("steps", range(1, 6))
def test_a_call_without_an_answer(watched: Meddling, steps: int, fate: str) -> None:
    """Executed or not, whichever it was: whoever asks again is told of each item what it is owed."""
    f = make(watched)
    f.reserve()
    watched.lose = ["answer"] * steps + [fate]
    with pytest.raises(BatchInterruptedError) as caught:
        f.add_many(MIXED)
    assert (caught.value.results, caught.value.rest) == ([], MIXED)
    told = finished(f, caught.value)
    assert told == model(MIXED, set())
    assert f.info().count == sum(told)


def test_only_a_call_without_an_answer_is_asked_about(watched: Meddling) -> None:
    """What the others told is remembered here: a batch of many is not asked about item by item."""
    f = make(watched)
    f.reserve()
    watched.lose = ["answer"] * 3 + ["lost"]
    with pytest.raises(BatchInterruptedError):
        f.add_many(ITEMS)
    second = len(watched.sent)
    assert f.add_many(ITEMS) == [True] * 3000
    told_of_first = len(of_the_first_segment(f))
    assert watched.verbs[second:].count("add") < 3000 - told_of_first
    assert f.info().count == 3000


def test_nothing_is_in_doubt_before_the_first_swap(watched: Meddling) -> None:
    """The client's own error says that the first segment was not read."""
    f = make(watched)
    f.reserve()
    watched.lose = ["lost"]
    with pytest.raises(redis.ConnectionError):
        f.add_many(ITEMS)
    watched.sent.clear()
    assert f.add_many(ITEMS) == [True] * 3000
    assert watched.verbs == ["read", "swap"] * 3


def test_rounds_that_were_answered_are_results(watched: Meddling, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the round that stops is asked about again."""
    monkeypatch.setattr(dense, "MOST_ITEMS", 1000)
    f = make(watched)
    f.reserve()
    watched.lose = ["answer"] * 9 + ["lost"]
    with pytest.raises(BatchInterruptedError) as caught:
        f.add_many(MIXED)
    assert caught.value.results == model(MIXED[:1000], set())
    assert caught.value.rest == MIXED[1000:]
    assert finished(f, caught.value) == model(MIXED, set())


def test_a_swap_that_arrives_late(watched: Meddling) -> None:
    """Once one of its items was asked about it is never executed."""
    f = make(watched)
    f.reserve()
    watched.lose = ["answer", "never"]
    with pytest.raises(BatchInterruptedError):
        f.add_many(ITEMS)
    late = watched.sent[-1]
    assert f.add(of_the_first_segment(f)[7])
    before = watched.client.dump("seen")
    assert watched.client.execute_command(*late) == 0
    assert watched.client.dump("seen") == before
    assert f.add_many(ITEMS) == [item != of_the_first_segment(f)[7] for item in ITEMS]
    assert watched.client.execute_command(*late) == 0
    assert f.info().count == 3000


def test_a_swap_that_arrives_twice(watched: Meddling) -> None:
    """It is executed once, and says so each time."""
    f = make(watched)
    f.add_many(ITEMS[:600])
    before = watched.client.dump("seen")
    assert watched.client.execute_command(*watched.sent[-1]) == 1
    assert watched.client.dump("seen") == before


def raising(error: BaseException, swap: int) -> Callable[[str], None]:
    """Return what raises an error in the place of one of the swaps, the first being number 1."""
    left = [swap]

    def meddle(verb: str) -> None:
        left[0] -= verb == "swap"
        if verb == "swap" and left[0] == 0:
            raise error

    return meddle


def test_a_refusal_in_the_middle(watched: Meddling) -> None:
    """The batch is interrupted if a segment was written before; else nothing was touched."""
    f = make(watched)
    full = redis.exceptions.OutOfMemoryError("command not allowed")
    watched.meddle = raising(full, 1)
    with pytest.raises(ServerRefusedError):
        f.add_many(ITEMS)
    watched.meddle = raising(full, 3)
    with pytest.raises(BatchInterruptedError) as caught:
        f.add_many(ITEMS)
    assert isinstance(caught.value.__cause__, ServerRefusedError)
    assert finished(f, caught.value) == [True] * 3000
    assert f.info().count == 3000


def test_an_interrupt_in_the_middle(watched: Meddling) -> None:
    """Asked again, every item gets the answer that was not handed out."""
    f = make(watched)
    watched.meddle = raising(KeyboardInterrupt(), 2)
    with pytest.raises(KeyboardInterrupt):
        f.add_many(MIXED)
    assert f.add_many(MIXED) == model(MIXED, set())


def test_items_in_doubt_are_asked_about_one_by_one(watched: Meddling) -> None:
    """A dense batch with one of them waits for the answer that it is owed."""
    f = make(watched)
    f.reserve()
    watched.lose = ["lost"]
    with pytest.raises(OutcomeUnknownError):
        f.add(ITEMS[7])
    assert f.add_many(ITEMS) == [True] * 3000


@pytest.mark.parametrize("on_lost", ["raise", "recreate"])
def test_a_filter_that_is_lost_in_the_middle(watched: Meddling, on_lost: str) -> None:
    """Everything is new to the one that takes its place."""
    f = make(watched, on_lost=on_lost)
    f.reserve()
    left = [2]

    def meddle(verb: str) -> None:
        left[0] -= verb == "swap"
        if left[0] == 0:
            left[0] = -1
            watched.client.delete("seen")

    watched.meddle = meddle
    if on_lost == "raise":
        with pytest.raises(FilterLostError):
            f.add_many(ITEMS)
        f.reserve()
    assert f.add_many(ITEMS) == [True] * 3000
    if on_lost == "raise":
        assert f.info().count == 3000


@pytest.mark.parametrize("retries", [True, False])
def test_lost_replies_lose_no_item(server: Server, *, retries: bool) -> None:
    """With a fifth of them lost every item is new once, whether the client asks again or the caller."""
    with losing(server.socket, share=0.2) as proxy:
        options: dict[str, Any] = {} if retries else {"retry": None}
        f = make(server.client())
        f.reserve()
        f = f.with_client(redis.Redis(port=proxy.port, **options))
        told: list[bool] = []
        while len(told) < len(MIXED):
            try:
                told += f.add_many(MIXED[len(told) :])
            except BatchInterruptedError as error:
                told += error.results
            except redis.ConnectionError:
                continue
        assert proxy.lost
    assert told == model(MIXED, set())
    assert Counter(told)[True] == make(server.client()).info().count
