"""Filters with the server's module: the same calls, on each server that loads RedisBloom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import fakeredis
import pytest
import redis

import bloomredis
from bloomredis import (
    BatchInterruptedError,
    BloomFilter,
    FilterFullError,
    FilterLostError,
    FilterMismatchError,
    FilterNotFoundError,
    ServerRefusedError,
)
from bloomredis.bits.module_items import MADE, marking, packed
from bloomredis.protocol.steps import Reply
from bloomredis.stored.module.header import read_state
from tests.conftest import ANY, BINARIES, FAKE, REAL
from tests.support.keys import claim_key
from tests.support.modules import MODULE, needs_module
from tests.support.servers import WITH_RESP3, Server, running
from tests.support.values import for_each


def reserve(
    client: redis.Redis, name: str = "seen", capacity: int = 1000, *options: str, error_rate: float = 0.01
) -> None:
    """Let another program create a filter, in place of an existing one."""
    client.delete(name)
    execute: Any = client.execute_command
    execute("BF.RESERVE", name, error_rate, capacity, *options)


CALLS: dict[str, Callable[[Any], object]] = {
    "add": lambda f: f.add("b"),
    "contains": lambda f: f.contains("b"),
    "add_many": lambda f: f.add_many(["b", "c"]),
    "contains_many": lambda f: f.contains_many(["b", "c"]),
    "update": lambda f: f.update(["b"]),
    "claim": lambda f: f.claim("b"),
    "expire": lambda f: f.expire(10),
    "info": lambda f: f.info(),
}
LOSSES: dict[str, Callable[[redis.Redis], object]] = {
    "flushed": lambda client: client.flushall(),
    "deleted": lambda client: client.delete("seen"),
    "reserved by others": reserve,
    "overwritten": lambda client: client.set("seen", "x"),
}


def make(bloom: Any, client: redis.Redis, name: str = "seen", **options: Any) -> Any:
    return bloom(client, name, **MODULE | options)


@pytest.fixture
def module_client(server: Server) -> Iterator[redis.Redis]:
    """A client of each server that has the module."""
    with server.client() as made:
        yield needs_module(made)


def test_items_are_those_of_the_module(bloom: Any, module_client: redis.Redis) -> None:
    """They are new once, then present; other programs find them, and their items are found."""
    f = make(bloom, module_client)
    items = ["a", b"\xff", "é", 42, "x" * 300]
    assert f.add("a")
    assert f.add_many([*items, "a"]) == [False, True, True, True, True, False]
    assert f.contains_many([*items, "absent"]) == [True] * 5 + [False]
    execute: Any = module_client.execute_command
    assert list(execute("BF.MEXISTS", "seen", *items)) == [1] * 5
    execute("BF.ADD", "seen", "theirs")
    assert not f.add("theirs")
    assert f.info().count == 6


def test_a_batch_crosses_scripts(bloom: Any, module_client: redis.Redis) -> None:
    """A batch of several scripts that makes the filter grow gets its answers together."""
    f = make(bloom, module_client, error_rate=1e-9)
    items = [f"item-{i}" for i in range(6000)]
    assert f.add_many(items + items) == [True] * 6000 + [False] * 6000
    about = f.info()
    assert (about.count, about.capacity, about.error_rate) == (6000, 1000, 1e-9)
    assert len(about.layers) == 3
    assert sum(layer.count for layer in about.layers) == 6000


def test_a_load_counts_what_was_new(bloom: Any, module_client: redis.Redis) -> None:
    """A load counts the new items, without an answer for each, and can be repeated."""
    f = make(bloom, module_client, error_rate=1e-9)
    seen: list[int] = []
    assert f.update((f"{i}" for i in range(20_000)), progress=seen.append) == 20_000
    assert f.update(map(str, range(5000))) == 5000
    assert seen == [16_384, 20_000]
    assert f.info().count == 20_000
    assert all(f.contains_many(range(0, 20_000, 7)))


def test_claims_and_pipelines(bloom: Any, module_client: redis.Redis) -> None:
    """A claim is committed once, and a pipeline's result is 1 or 0."""
    f = make(bloom, module_client)
    claim, other = f.claim("a"), f.claim("a")
    assert (claim.state, other.state, f.contains("a")) == ("claimed", "busy", False)
    bloom.wait(claim.commit())
    assert [each.state for each in f.claim_many(["a", "b"])] == ["done", "claimed"]
    assert not f.add("a")
    assert f.info().count == 1


def test_calls_in_a_pipeline(module_client: redis.Redis) -> None:
    """Each result is 1 or 0, in a transaction too."""
    f = BloomFilter(module_client, "seen", **MODULE)
    for transaction in (False, True):
        with module_client.pipeline(transaction=transaction) as pipe:
            f.queue_add(pipe, f"{transaction}")
            f.queue_contains(pipe, f"{transaction}")
            f.queue_contains(pipe, "absent")
            assert pipe.execute() == [1, 1, 0]


@for_each("call", CALLS)
@for_each("loss", LOSSES)
def test_every_call_notices_a_loss(bloom: Any, module_client: redis.Redis, call: str, loss: str) -> None:
    """If it was flushed, deleted, recreated by another program or overwritten, the call adds nothing."""
    f = make(bloom, module_client)
    f.add("a")
    LOSSES[loss](module_client)
    with pytest.raises(FilterLostError, match="since it was first used"):
        CALLS[call](f)
    if loss == "reserved by others":
        execute: Any = module_client.execute_command
        assert list(execute("BF.MEXISTS", "seen", "a", "b", "c")) == [0, 0, 0]


def test_clear_makes_another_generation(bloom: Any, module_client: redis.Redis) -> None:
    """Parameters and expiry stay; another object detects the clear."""
    f = make(bloom, module_client, ttl=1000)
    f.add("a")
    other = bloom.open(module_client, "seen")
    f.clear()
    about = f.info()
    assert (about.count, about.capacity, about.error_rate) == (0, 1000, 0.01)
    assert 990 < about.ttl <= 1000
    assert f.add("a")
    with pytest.raises(FilterLostError):
        other.contains("a")
    assert module_client.keys("*cleared*") == []


def test_delete_says_if_it_existed(bloom: Any, module_client: redis.Redis) -> None:
    """The next call creates the filter again."""
    f = make(bloom, module_client)
    f.create()
    assert [f.delete(), f.delete()] == [True, False]
    assert f.add("a")


def test_open_finds_the_parameters(bloom: Any, module_client: redis.Redis) -> None:
    """`open` works for a full filter too, and reads its generation from its items."""
    for rate in (0.2, 1e-2, 1e-5):
        f = make(bloom, module_client, f"{rate}", error_rate=rate)
        f.update(range(1000))
        opened = bloom.open(module_client, f"{rate}")
        assert opened.info() == f.info()
        assert (opened.info().capacity, opened.info().error_rate) == (1000, rate)


def test_other_parameters_are_a_mismatch(bloom: Any, module_client: redis.Redis) -> None:
    """The message gives both values, and nothing changes."""
    make(bloom, module_client).add("a")
    before = module_client.dump("seen")
    for other in ({"capacity": 2000}, {"error_rate": 0.02}):
        for call in ("create", "clear", "delete"):
            with pytest.raises(FilterMismatchError, match=r"holds capacity 1000, not 2000|0\.01, not 0\.02"):
                getattr(make(bloom, module_client, **other), call)()
    assert module_client.dump("seen") == before


def test_a_filter_of_another_program_is_adopted_by_open(bloom: Any, module_client: redis.Redis) -> None:
    """Its items stay, two openers get the same generation, and both programs can use it."""
    reserve(module_client)
    execute: Any = module_client.execute_command
    execute("BF.ADD", "seen", "theirs")
    with pytest.raises(FilterMismatchError, match=r"without markers.*open"):
        make(bloom, module_client).add("a")
    assert execute("BF.CARD", "seen") == 1
    f, again = bloom.open(module_client, "seen"), bloom.open(module_client, "seen")
    assert f.info().generation == again.info().generation
    assert (f.info().capacity, f.info().count, f.add("theirs")) == (1000, 1, False)
    assert f.add("ours")
    assert execute("BF.EXISTS", "seen", "ours") == 1
    assert not make(bloom, module_client).add("ours")  # the capacity is that of BF.RESERVE


def test_a_fixed_filter_refuses_what_does_not_fit(bloom: Any, module_client: redis.Redis) -> None:
    """The error has the answers for the items that fitted; calls about present items still work."""
    reserve(module_client, "seen", 200, "NONSCALING", error_rate=1e-6)
    f = bloom.open(module_client, "seen")
    items = [f"{i}" for i in range(300)]
    with pytest.raises(bloomredis.BatchInterruptedError) as caught:
        f.add_many(items)
    assert isinstance(caught.value.__cause__, FilterFullError)
    done = len(caught.value.results)
    assert f.contains_many(items[:done]) == [True] * done
    assert f.info().count == sum(caught.value.results) == 200 - marking(1e-6).total(encoded=False)
    assert not f.add(items[0])
    with pytest.raises(FilterFullError, match="takes no more items"):
        f.add("one more")
    claim = f.claim("one more")
    with pytest.raises(FilterFullError):
        bloom.wait(claim.commit())
    assert not f.contains("one more")


def test_claims_make_it_grow(bloom: Any, module_client: redis.Redis) -> None:
    """A commit beyond the capacity succeeds, though an add would not."""
    f = make(bloom, module_client, capacity=20, error_rate=1e-6)
    for number in range(50):
        bloom.wait(f.claim(number).commit())
    assert f.info().count == 50
    assert f.contains_many(range(50)) == [True] * 50


def test_a_growing_filter_without_room_for_markers(bloom: Any, module_client: redis.Redis) -> None:
    """A full growing filter grows for the markers."""
    for count in range(0, 61, 4):
        reserve(module_client, "seen", 60, error_rate=1e-6)
        for number in range(count):
            module_client.execute_command("BF.ADD", "seen", f"theirs {number}")  # type: ignore[no-untyped-call]
        assert bloom.open(module_client, "seen").add("ours")


def full_without_markers(client: redis.Redis) -> None:
    """Let another program fill a filter that does not grow and has no room for markers."""
    reserve(client, "seen", 10, "NONSCALING", error_rate=1e-6)
    for number in range(10):
        client.execute_command("BF.ADD", "seen", f"theirs {number}")  # type: ignore[no-untyped-call]


def test_a_fixed_filter_without_room_for_markers(bloom: Any, module_client: redis.Redis) -> None:
    """Its items can be tested; all other calls raise what a full filter raises, and change nothing."""
    full_without_markers(module_client)
    before = module_client.dump("seen")
    for f in (bloom.open(module_client, "seen"), bloom(module_client, "seen", layout="module")):
        assert f.contains("theirs 1")
        assert not f.contains("ours")
        assert f.contains_many(["theirs 2", "ours"]) == [True, False]
        assert (f.info().count, f.info().capacity) == (10, 10)
        f.create()
        for verb in ("add", "add_many", "update", "claim"):
            error = BatchInterruptedError if verb in ("add_many", "update") else FilterFullError
            with pytest.raises(error, match="no room for markers, so its items can only be tested"):
                CALLS[verb](f)
    assert module_client.dump("seen") == before


@for_each("lose", [*LOSSES.values(), full_without_markers])
def test_the_loss_of_a_filter_without_markers(
    bloom: Any, module_client: redis.Redis, lose: Callable[[redis.Redis], object]
) -> None:
    """A test that would answer False finds the loss, unless the filter was made again as it was."""
    full_without_markers(module_client)
    f = bloom.open(module_client, "seen")
    lose(module_client)
    if lose is full_without_markers:
        assert not f.contains("ours")
        return
    for call in (f.contains, f.add):
        with pytest.raises(FilterLostError):
            call("ours")


def test_on_full_counts_what_others_add(module_client: redis.Redis) -> None:
    """With on_full a growing filter refuses at its capacity."""
    f = BloomFilter(module_client, "seen", on_full="raise", **MODULE | {"capacity": 50, "error_rate": 1e-6})
    assert sum(f.add_many(range(50))) == 50
    with pytest.raises(FilterFullError, match="is full and was made for capacity 50"):
        f.add("x")


def test_a_known_item_writes_nothing(module_client: redis.Redis) -> None:
    """Neither an add of one known item nor contains writes anything."""
    f = BloomFilter(module_client, "seen", **MODULE)
    f.add("a")

    def written() -> int:
        return int(module_client.info("persistence")["rdb_changes_since_last_save"])

    before = written()
    assert not any(f.add("a") for _ in range(10))
    assert f.contains("a")
    assert written() == before


def test_script_flush_changes_no_answer(bloom: Any, module_client: redis.Redis) -> None:
    """The call that finds no script sends it again."""
    f = make(bloom, module_client)
    for round_ in range(2):
        module_client.script_flush()
        assert f.add(f"{round_}")
        module_client.script_flush()
        assert f.add_many([f"{round_}", "x" * round_]) == [False, True]


def test_decoding_clients(bloom: Any, server: Server) -> None:
    """decode_responses=True and RESP3 change no answer."""
    for options in ({"decode_responses": True}, *WITH_RESP3):
        with server.client(**options) as made:
            needs_module(made).flushall()
            f = make(bloom, made)
            assert f.add_many(["a", "b", "a"]) == [True, True, False]
            assert [f.add("a"), f.contains("a"), f.contains("x")] == [False, True, False]
            assert bloom.open(made, "seen").info().count == 2


def refused(bloom: Any, client: redis.Redis) -> None:
    """Check that a server refuses all calls with advice, and stays unchanged."""
    f = make(bloom, client)
    for call in (partial(f.add, "a"), partial(f.contains, "a"), f.create, f.clear, f.delete):
        with pytest.raises(ServerRefusedError, match=r"no Bloom filter module.*Redis 8.*omit layout"):
            call()
    assert client.keys() == []


@for_each("name", [*REAL, FAKE])
def test_a_server_without_the_module(bloom: Any, name: str) -> None:
    """The server refuses, and nothing is written."""
    if name == FAKE:
        refused(bloom, fakeredis.FakeRedis(server=fakeredis.FakeServer()))
        return
    with running(BINARIES[name]) as server, server.client() as client:
        refused(bloom, client)


def test_a_server_that_has_lost_the_module(module_client: redis.Redis) -> None:
    """An open filter gets the same error after its server was replaced by one without the module."""
    f = BloomFilter(module_client, "seen", **MODULE)
    f.create()
    with running(BINARIES[ANY]) as server, server.client() as other:
        moved = f.with_client(other)
        for call in (partial(moved.add, "a"), partial(moved.contains, "a")):
            with pytest.raises(ServerRefusedError, match="no Bloom filter module"):
                call()


def test_a_load_that_fills_the_filter(module_client: Any) -> None:
    """The error says how many items are certainly in."""
    module_client.execute_command("BF.RESERVE", "full", 0.01, 20_000, "NONSCALING")
    f = BloomFilter.open(module_client, "full")
    with pytest.raises(BatchInterruptedError, match=r"^[1-9]\d+ items were added, then: ") as met:
        f.update(range(100_000))
    assert isinstance(met.value.__cause__, FilterFullError)
    assert met.value.done > 0


def test_a_missing_filter(bloom: Any, module_client: redis.Redis) -> None:
    """Without parameters nothing is created."""
    with pytest.raises(FilterNotFoundError):
        bloom(module_client, "seen", layout="module").add("a")


@for_each(
    ("options", "message"),
    [
        ({"local_cache": True}, "keeps the bits to itself"),
        ({"error_rate": 0.3}, "at most 0.25"),
        ({"capacity": 0}, "at least 1"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    """Contradicting options are refused before any I/O."""
    with pytest.raises(ValueError, match=message):
        BloomFilter(redis.Redis(), "seen", **MODULE | options)


@for_each("kind", ["ScalingBloomFilter", "RotatingBloomFilter", "ShardedBloomFilter"])
def test_other_kinds_have_no_such_layout(kind: str) -> None:
    """Other classes refuse the module's layout, whose filters grow by themselves."""
    window = {"window": 60} if kind.startswith("R") else {}
    with pytest.raises(ValueError, match="for BloomFilter alone"):
        getattr(bloomredis, kind)(redis.Redis(), "seen", **MODULE, **window)


def test_a_snapshot_says_why_there_is_none(module_client: redis.Redis) -> None:
    """A snapshot is refused, since the module does not expose the bits."""
    with pytest.raises(TypeError, match="none that can be read"):
        BloomFilter(module_client, "seen", **MODULE).snapshot()


def test_the_generation_is_spelled() -> None:
    """It is read from the answers for the markers, even if a full filter has false positives."""
    marks, generation = marking(0.01), bytes(range(8, 16))
    spelled = {b"%x%x%d" % (i, int(digit, 16), n) for i, digit in enumerate(generation.hex()) for n in (0, 1)}
    there = {*marks.of(generation), *marks.signature(MADE), *(b"\0bloomr" + each for each in spelled)}
    assert len(there) == marks.total(encoded=False) == 40
    answers = [item in there for item in marks.questions(0)]
    assert marks.kind_of(answers) == MADE
    assert list(marks.generations(answers)) == [generation]
    wrong = next(i for i in range(8, len(answers)) if not answers[i])
    answers[wrong] = answers[wrong ^ 1] = True  # a false positive of a nibble
    assert generation in list(marks.generations(answers))


def test_items_are_strings_of_messagepack() -> None:
    """Strings of each length are accepted, in either type."""
    items = ["", "a" * 31, "a" * 32, "a" * 255]
    assert packed(items) == packed([item.encode() for item in items])
    assert packed([b"x" * 256])[:3] == b"\xda\x01\x00"
    assert packed([b"x" * 65536])[:5] == b"\xdb\x00\x01\x00\x00"
    assert packed(["a" * 300])[:3] == b"\xda\x01\x2c"


def test_the_state_that_valkeys_module_describes() -> None:
    """Without BF.SCANDUMP the sizes follow from BF.INFO, whose rate is the configured one."""
    about: list[Reply] = [b"Capacity", 3000, b"Size", 9000, b"Number of filters", 2]
    about += [b"Number of items inserted", 1500]
    about += [b"Error rate", b"0.01", b"Expansion rate", 2, b"Tightening ratio", b"0.5"]
    state = read_state(-1, about, b"")
    assert (state.entries, state.error_rate, state.growth, state.items) == (1000, 0.01, 2, 1500)
    assert [(link.entries, link.error_rate, link.items) for link in state.links] == [
        (1000, 0.01, 1000),
        (2000, 0.005, 500),
    ]


def _filled(client: redis.Redis, key: str, leaving: int) -> int:
    """Add items until that many places remain, or the module refuses; return the capacity."""
    execute: Any = client.execute_command
    for start in range(0, 30_000, 10):
        about = execute("BF.INFO", key)
        state = dict(zip(about[::2], about[1::2], strict=True)) if isinstance(about, list) else about
        capacity, items = state[b"Capacity"], state[b"Number of items inserted"]
        most = min(10, leaving - items) if leaving > 0 else 10
        if most <= 0:
            break
        if any(isinstance(each, Exception) for each in execute("BF.MADD", key, *range(start, start + most))):
            return int(capacity)
    return int(capacity)


def test_commits_where_the_module_grows_no_more(module_client: redis.Redis) -> None:
    """Commits with room succeed; the later claims stay held, and none is reported lost.

    Each bitmap has half the error rate of the one before, until no further bitmap is possible.
    """
    for name in ("probe", "seen"):
        reserve(module_client, name, 10, "EXPANSION", "1")
    f = BloomFilter.open(module_client, "seen")
    f.commit_many(f.claim_many(["one", "two"]))
    _filled(module_client, "seen", _filled(module_client, "probe", 0) - 5)
    claims = [claim for claim in f.claim_many([f"item {i}" for i in range(30)]) if claim][:12]
    with pytest.raises(BatchInterruptedError) as met:
        f.commit_many(claims)
    assert isinstance(met.value.__cause__, FilterFullError)
    done = len(met.value.results)
    assert 0 < done < 12
    assert [claim.state for claim in claims] == ["done"] * done + ["claimed"] * (12 - done)
    assert all(f.contains_many([claim.item for claim in claims[:done]]))
    keys = [claim_key("seen", claim.item) for claim in claims]
    assert [module_client.exists(key) for key in keys] == [0] * done + [1] * (12 - done)
    assert f.release_many(claims[done:]) == ["released"] * (12 - done)
