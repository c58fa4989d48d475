"""A filter's calls, on every server."""

from __future__ import annotations

import gc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

import bloomredis
from bloomredis import (
    FilterLostError,
    FilterMismatchError,
    FilterNotFoundError,
)
from bloomredis.protocol.pending import Answers
from tests.support.inside import inside
from tests.support.servers import WITH_RESP3, Server
from tests.support.values import for_each


def make(bloom: Any, client: redis.Redis, name: str = "seen", **options: Any) -> Any:
    return bloom(client, name, **{"capacity": 1000, "error_rate": 0.01} | options)


def test_the_first_to_add_is_told(bloom: Any, client: redis.Redis) -> None:
    """An item is new once, then present."""
    f = make(bloom, client)
    assert f.add("a")
    assert not f.add("a")
    assert f.contains("a")
    assert "a" in f
    assert "b" not in f


def test_a_batch_answers_in_order(bloom: Any, client: redis.Redis) -> None:
    """Answers are in order; of two equal items in a batch the first is new."""
    f = make(bloom, client)
    assert f.add_many(["x", "y", "x", 42, b"42", "42"]) == [True, True, False, True, False, False]
    assert f.contains_many(["x", "z", 42]) == [True, False, True]


def test_generators_are_accepted(bloom: Any, any_client: redis.Redis) -> None:
    """Items may come from any iterable."""
    f = make(bloom, any_client)
    assert f.add_many(f"{i}" for i in range(3)) == [True] * 3
    assert f.contains_many(iter(["1", "9"])) == [True, False]


def test_dedupe_keeps_order_and_reads_lazily(bloom: Any, any_client: redis.Redis) -> None:
    """Only new items are yielded, in order; an endless source is read batch by batch."""
    f = make(bloom, any_client)

    def endless() -> object:
        i = 0
        while True:
            yield i % 5
            i += 1

    assert list(f.dedupe(["b", "a", "b", "c", "a"])) == ["b", "a", "c"]
    source = f.dedupe(endless())
    assert [next(source) for _ in range(5)] == [0, 1, 2, 3, 4]


def test_a_large_batch_crosses_scripts(bloom: Any, client: redis.Redis) -> None:
    """A batch of several scripts gets its answers together, and is counted exactly."""
    f = make(bloom, client, capacity=10_000, error_rate=1e-9)
    items = [f"item-{i}" for i in range(1500)]
    assert f.add_many(items + items) == [True] * 1500 + [False] * 1500
    assert f.info().count == 1500


def test_info_describes_the_filter(bloom: Any, client: redis.Redis) -> None:
    """Info has the filter's parameters, fill and age."""
    f = make(bloom, client, capacity=1000, error_rate=0.01, layout="classic")
    f.add_many(range(1000))
    info = f.info()
    assert (info.name, info.layout, info.capacity, info.error_rate) == ("seen", "classic", 1000, 0.01)
    assert (info.num_bits, info.num_hashes, info.size_bytes) == (9586, 7, 64 + 1199)
    assert info.size_bytes == client.strlen("seen")
    assert info.count == pytest.approx(1000, abs=10)
    assert info.approximate_count == pytest.approx(1000, rel=0.03)
    assert info.fill_ratio == pytest.approx(0.518, abs=0.02)
    assert info.estimated_error_rate == pytest.approx(0.01, rel=0.3)
    assert info.ttl is None
    assert abs(datetime.now(UTC) - info.created_at) < timedelta(minutes=5)


def test_the_count_counts_what_was_new(bloom: Any, client: redis.Redis) -> None:
    """Duplicates do not count, by whichever call."""
    f = make(bloom, client)
    f.add_many(["a", "a", "b"])
    f.add("a")
    f.add("c")
    assert f.info().count == 3


def test_a_second_client_shares_the_filter(bloom: Any, client: redis.Redis) -> None:
    """The second client may give the parameters or read them."""
    make(bloom, client).add("a")
    assert "a" in make(bloom, client)
    opened = bloom.open(client, "seen")
    assert "a" in opened
    assert opened.info().capacity == 1000


def test_open_needs_a_filter(bloom: Any, client: redis.Redis) -> None:
    """Without parameters nothing is created."""
    with pytest.raises(FilterNotFoundError, match=r"'seen'.*capacity= and error_rate="):
        bloom.open(client, "seen")
    with pytest.raises(FilterNotFoundError):
        bloom(client, "seen").add("a")
    assert not client.exists("seen")


def test_other_parameters_are_a_mismatch(bloom: Any, client: redis.Redis) -> None:
    """The message gives stored and wanted values; the filter is unchanged."""
    make(bloom, client).add("a")
    before = client.dump("seen")
    for other in (make(bloom, client, capacity=2000), make(bloom, client, error_rate=0.02)):
        for call in (lambda f=other: f.add("b"), other.create, other.clear, other.delete):
            with pytest.raises(FilterMismatchError, match=r"holds capacity 1000, not 2000|0\.01, not 0\.02"):
                call()
    assert client.dump("seen") == before


@for_each("kind", ["string", "empty", "list", "hash"])
def test_a_foreign_key_is_untouched(bloom: Any, client: redis.Redis, kind: str) -> None:
    """A key with another kind of value stays unchanged by every call."""
    make_key: dict[str, Callable[[], object]] = {
        "string": lambda: client.set("k", b"\x00" * 200),
        "empty": lambda: client.set("k", b""),
        "list": lambda: client.rpush("k", "a"),
        "hash": lambda: client.hset("k", "a", "b"),
    }
    make_key[kind]()
    before = client.dump("k")
    for f in (make(bloom, client, "k"), bloom(client, "k")):
        calls: list[Callable[[], object]] = [lambda f=f: f.add("a"), lambda f=f: f.add_many(["a", "b"])]  # type: ignore[misc]  # a default binds the loop variable
        for call in (*calls, f.create, f.info, f.clear, f.delete, lambda f=f: f.expire(5)):
            with pytest.raises(FilterMismatchError, match="'k'"):
                call()
    assert client.dump("k") == before


def test_clear_empties_and_others_notice(bloom: Any, client: redis.Redis) -> None:
    """The object that cleared it sees an empty filter; the others raise once."""
    mine, other = make(bloom, client), make(bloom, client)
    other.add("a")
    mine.clear()
    assert mine.info().count == 0
    assert mine.add("a")
    with pytest.raises(FilterLostError, match="cleared or replaced"):
        other.add("b")
    assert "a" in other


def test_clear_keeps_parameters_and_expiry(bloom: Any, client: redis.Redis) -> None:
    """Only bits, count and generation change."""
    f = bloom(client, "seen", capacity=1000, error_rate=0.01, ttl=1000)
    f.add("a")
    before = f.info()
    f.clear()
    after = f.info()
    assert after.generation != before.generation
    assert (after.capacity, after.num_bits) == (before.capacity, before.num_bits)
    assert after.ttl == pytest.approx(1000, abs=30)


def test_delete_says_whether_it_existed(bloom: Any, client: redis.Redis) -> None:
    """It returns True, then False; the next add creates the filter again."""
    f = make(bloom, client)
    f.add("a")
    assert f.delete()
    assert not f.delete()
    assert f.add("a")


@for_each("call", [lambda f: f.add("b"), lambda f: f.contains_many(["b"]), lambda f: f.info()])
def test_a_vanished_filter_is_noticed(bloom: Any, client: redis.Redis, call: Callable[[Any], object]) -> None:
    """A call on a used filter that is gone raises, and creates nothing."""
    f = make(bloom, client)
    f.add("a")
    client.delete("seen")
    with pytest.raises(FilterLostError, match=r"'seen'.*acknowledge\(\)"):
        call(f)
    assert not client.exists("seen")


def test_an_overwritten_filter_is_noticed(bloom: Any, client: redis.Redis) -> None:
    """A string or another type in its place counts as a loss, and is left alone."""
    for overwrite in (lambda: client.set("seen", "x"), lambda: client.rpush("seen", "x")):
        client.delete("seen")
        f = make(bloom, client)
        f.add("a")
        client.delete("seen")
        overwrite()
        with pytest.raises(FilterLostError, match="overwritten"):
            f.add("a")


def test_ttl_counts_from_creation(bloom: Any, client: redis.Redis) -> None:
    """A second client with the same ttl does not renew it."""
    first = bloom(client, "seen", capacity=10, error_rate=0.1, ttl=timedelta(seconds=100))
    first.add("a")
    client.expire("seen", 50)
    bloom(client, "seen", capacity=10, error_rate=0.1, ttl=100).add("b")
    assert 0 < (first.info().ttl or 0) <= 50


def test_expire_covers_the_filter(bloom: Any, client: redis.Redis) -> None:
    """The filter is one key with one expiry."""
    f = make(bloom, client)
    f.expire(12.5)
    assert f.info().ttl == pytest.approx(12.5, abs=3)
    f.add("a")
    assert all(client.pttl(key) > 0 for key in client.keys("*"))


def test_a_filter_moves_as_one(bloom: Any, client: redis.Redis) -> None:
    """RENAME, and DUMP with RESTORE, keep parameters and bits together."""
    make(bloom, client).add("a")
    client.restore("copy", 0, client.dump("seen"))  # type: ignore[arg-type]  # bytes
    client.rename("seen", "moved")
    assert "a" in bloom.open(client, "moved")
    assert "a" in bloom.open(client, "copy")


def test_script_flush_changes_no_answer(bloom: Any, client: redis.Redis) -> None:
    """A server that has lost the scripts gets them again within the call."""
    f = make(bloom, client)
    for i in range(5):
        client.script_flush()
        assert f.add(f"{i}")
        client.script_flush()
        assert f.contains_many(f"{i}" for i in range(i + 1)) == [True] * (i + 1)


def test_the_stored_string_is_the_specified_one(bloom: Any, client: redis.Redis) -> None:
    """Bit b of the filter is bit 512 + b of the string, and no other bit is set."""
    f = make(bloom, client, capacity=100)
    f.add("a")
    offsets = set(inside(f).stored.handle.layout.offsets("a"))
    raw = client.getrange("seen", 64, -1)
    bits = "".join(f"{byte:08b}" for byte in raw)
    assert {i for i, bit in enumerate(bits) if bit == "1"} == offsets


def test_custom_items(bloom: Any, any_client: redis.Redis) -> None:
    """With encode= items can be of any type."""
    f = bloom(any_client, "seen", capacity=10, error_rate=0.01, encode=lambda pair: b"%d/%d" % pair)
    assert f.add_many([(1, 2), (1, 2), (2, 1)]) == [True, False, True]
    assert (1, 2) in bloom.open(any_client, "seen", encode=lambda pair: b"%d/%d" % pair)


def test_names_are_text(bloom: Any, client: redis.Redis) -> None:
    """A name may contain any characters."""
    f = make(bloom, client, "gesehen: ä {x} \n")
    f.add("a")
    assert client.exists("gesehen: ä {x} \n")


def test_clients_that_decode(bloom: Any, server: Server) -> None:
    """decode_responses=True and RESP3 change no answer."""
    for options in ({"decode_responses": True}, *WITH_RESP3):
        with server.client(**options) as client:
            client.flushall()
            f = make(bloom, client)
            assert f.add_many(["a", "b", "a"]) == [True, True, False]
            assert f.info().count == 2
            assert f.update(range(500)) == 500
            assert all(f.snapshot().contains_many(["a", *range(500)]))


def test_valkey_clients(bloom: Any, server: Server) -> None:
    """The valkey package's client works too, including its NOSCRIPT error."""
    import valkey

    with valkey.Valkey(unix_socket_path=server.socket) as client:
        f = bloom(client, "seen", capacity=10, error_rate=0.1)
        assert f.add("a")
        client.script_flush()
        assert not f.add("a")
        client.set("other", "x")
        with pytest.raises(FilterMismatchError):
            bloom(client, "other").create()


def test_a_restart_changes_no_answer(bloom: Any) -> None:
    """A server that kept its data and lost the scripts works as before."""
    from tests.conftest import BINARIES
    from tests.support.retries import retrying
    from tests.support.servers import running

    for binary in BINARIES.values():
        server = running(binary, "--appendonly", "yes", "--appendfsync", "always")
        with server as own, own.client(**retrying(1)) as client:
            f = make(bloom, client)
            assert f.add("a")
            own.stop()
            own.start()
            assert not f.add("a")
            assert f.add("b")


@for_each("kind", ["BloomFilter", "ShardedBloomFilter"])
def test_batches_leave_no_garbage(any_client: redis.Redis, kind: str) -> None:
    """A batch's memory is free without garbage collection, so a stream of batches needs no more."""
    f = getattr(bloomredis, kind)(any_client, "seen", capacity=1000, error_rate=1e-6)
    f.add_many(["a", "b"])
    gc.collect()
    gc.disable()
    try:
        for i in range(10):
            f.add_many([f"{i}", f"{i}x"])
        assert not [each for each in gc.get_objects() if isinstance(each, Answers)]
    finally:
        gc.enable()
