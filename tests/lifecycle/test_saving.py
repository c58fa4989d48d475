"""Filters that are saved, restored and copied."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from socket import socketpair
from types import SimpleNamespace
from typing import Any, cast

import pytest
import redis

import bloomredis
from bloomredis import (
    BloomFilter,
    FilterExistsError,
    FilterLostError,
    FilterMismatchError,
    FilterNotFoundError,
    RotatingBloomFilter,
    ServerRefusedError,
    ShardedBloomFilter,
    compat,
    connect,
)
from bloomredis.protocol.pieces import PIECE_BYTES
from bloomredis.stored.saved import writing as restore
from bloomredis.testing import later
from tests.support.modules import MODULE, needs_module
from tests.support.saving import ABSENT, ITEMS, KINDS, Killed, Mortal, comparable, made, saved
from tests.support.servers import Server, binaries, running

EACH_KIND = pytest.mark.parametrize("kind", KINDS)
ASKED = [*ITEMS, *ABSENT]


@pytest.fixture
def other() -> Iterator[redis.Redis]:
    """A client of another server, of the oldest version."""
    with running(binaries()["redis-6.2"]) as server, server.client() as made:
        yield made


@EACH_KIND
def test_a_restored_filter_answers_alike(bloom: Any, client: redis.Redis, kind: str, tmp_path: Path) -> None:
    """It has the same answers and info, except for its name, generation and creation time."""
    of, parameters = KINDS[kind]
    f = bloom(client, "seen", kind=of, **parameters)
    f.add_many(ITEMS)
    f.save(tmp_path / "seen.bloom")
    restored = bloom.restore(client, "copy", str(tmp_path / "seen.bloom"), of)
    assert restored.contains_many(ASKED) == f.contains_many(ASKED)
    assert comparable(restored.info()) == comparable(f.info())
    assert restored.info().generation != f.info().generation
    assert [each.name for each in tmp_path.iterdir()] == ["seen.bloom"]
    assert not list(client.scan_iter("*written*"))


@EACH_KIND
def test_a_copy_answers_alike(bloom: Any, client: redis.Redis, other: redis.Redis, kind: str) -> None:
    """A copy gives the same answers, even on another version of the server; later adds are not shared."""
    of, parameters = KINDS[kind]
    f = bloom(client, "seen", kind=of, **parameters)
    f.add_many(ITEMS)
    copy = bloom.copy(f, other, "copy")
    assert copy.contains_many(ASKED) == f.contains_many(ASKED)
    assert comparable(copy.info()) == comparable(f.info())
    absent = next(item for item, there in zip(ABSENT, f.contains_many(ABSENT), strict=True) if not there)
    assert copy.add(absent)
    assert not f.contains(absent)


@EACH_KIND
def test_nothing_is_overwritten(any_client: redis.Redis, kind: str) -> None:
    """Neither a filter nor another key is overwritten, and no other key remains."""
    file = io.BytesIO(saved(made(any_client, kind)))
    any_client.set("taken", "x")
    before = set(any_client.scan_iter())
    for name in ("seen", "taken"):
        file.seek(0)
        with pytest.raises(FilterExistsError, match="exists already"):
            getattr(bloomredis, KINDS[kind][0]).restore(any_client, name, file)
        with pytest.raises(FilterExistsError, match="exists already"):
            getattr(bloomredis, KINDS[kind][0]).open(any_client, "seen").copy(any_client, name)
    assert {key for key in any_client.scan_iter() if b"receipt" not in key} <= before
    assert any_client.get("taken") == b"x"


@EACH_KIND
def test_a_changed_file_is_refused(any_client: redis.Redis, kind: str) -> None:
    """A file cut anywhere, or with any byte changed or added, is refused, and nothing is written."""
    data = saved(made(any_client, kind))
    any_client.flushall()
    places = [*range(0, 400, 7), *range(400, len(data), len(data) // 40), len(data) - 1]
    for at in places:
        for changed in (data[:at], data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]):
            with pytest.raises(ValueError, match="cannot be used"):
                getattr(bloomredis, KINDS[kind][0]).restore(any_client, "copy", io.BytesIO(changed))
    with pytest.raises(ValueError, match="after its checksum"):
        getattr(bloomredis, KINDS[kind][0]).restore(any_client, "copy", io.BytesIO(data + b"x"))
    assert not any_client.dbsize()


@EACH_KIND
def test_a_changed_stream_is_refused(any_client: redis.Redis, kind: str) -> None:
    """A stream that can be read only once is refused too, and no permanent key remains."""
    data = saved(made(any_client, kind))
    any_client.flushall()

    class Stream(io.BytesIO):
        def seekable(self) -> bool:
            return False

    for changed in (data[:-1], data[:-40] + bytes([data[-40] ^ 1]) + data[-39:]):
        with pytest.raises(ValueError, match="cannot be used"):
            getattr(bloomredis, KINDS[kind][0]).restore(any_client, "copy", Stream(changed))
    assert not any_client.dbsize()
    f = getattr(bloomredis, KINDS[kind][0]).restore(any_client, "copy", Stream(data))
    assert all(f.contains_many(ITEMS))


def test_what_follows_on_a_stream(bloom: Any, any_client: redis.Redis, tmp_path: Path) -> None:
    """A connection may carry several filters in a row; a pipe given by path ends with the first."""
    data = saved(made(any_client, "blocked"))
    any_client.flushall()
    here, there = socketpair()
    with here, there, here.makefile("rb") as stream, ThreadPoolExecutor(1) as thread:
        thread.submit(there.sendall, data + data)
        for name in ("one", "two"):
            assert all(bloom.restore(any_client, name, stream).contains_many(ITEMS))
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as thread:
        thread.submit((tmp_path / "pipe").write_bytes, data + b"x")
        with pytest.raises(ValueError, match="after its checksum"):
            bloom.restore(any_client, "three", tmp_path / "pipe")
    assert not any_client.exists("three")


@EACH_KIND
def test_a_file_of_another_class_is_refused(any_client: redis.Redis, kind: str) -> None:
    """The error names the class that can restore it."""
    of = KINDS[kind][0]
    wrong: Any = BloomFilter if of != "BloomFilter" else RotatingBloomFilter
    with pytest.raises(ValueError, match=f"use {of}"):
        wrong.restore(any_client, "copy", io.BytesIO(saved(made(any_client, kind))))


@EACH_KIND
def test_a_process_that_ends_leaves_no_half_filter(any_client: redis.Redis, kind: str) -> None:
    """Wherever it ends, the whole filter exists or none, and leftover keys expire."""
    f = made(any_client, kind)
    wanted, data = f.contains_many(ASKED), saved(f)
    of: Any = type(f)
    f.delete()
    outcomes = set()
    for step in range(200):
        any_client.flushall()
        mortal: Any = Mortal(any_client, step)
        try:
            of.restore(mortal, "copy", io.BytesIO(data))
        except Killed:
            outcomes.add(whole_or_none(any_client, of, wanted))
        else:
            break
    assert outcomes == {"none", "whole"}
    assert whole_or_none(any_client, of, wanted) == "whole"


def whole_or_none(client: redis.Redis, of: Any, wanted: list[bool]) -> str:
    """Return whether the whole filter or none exists, now and after leftover keys expire."""
    try:
        assert of.open(client, "copy").contains_many(ASKED) == wanted
    except FilterNotFoundError:
        for key in client.scan_iter():
            assert client.pttl(key) > 0, key
        return "none"
    return "whole"


def test_shards_that_expired_before_they_were_kept(any_client: redis.Redis) -> None:
    """If one shard expired before the record was kept, an opener finds no filter and deletes the others."""
    f = made(any_client, "sharded")
    data = saved(f)
    f.delete()
    met = set()
    for step in range(200):
        any_client.flushall()
        mortal: Any = Mortal(any_client, step)
        try:
            ShardedBloomFilter.restore(mortal, "copy", io.BytesIO(data))
        except Killed:
            for key in any_client.scan_iter("{copy:*"):
                if 0 <= any_client.pttl(key) <= 600_000 and any_client.exists("copy"):
                    any_client.delete(key)
            state: Any = any_client.getrange("copy", 88, 89)
            met.add(state)
            if state == b"\0\3":
                with pytest.raises(FilterNotFoundError):
                    ShardedBloomFilter.open(any_client, "copy")
                assert not list(any_client.scan_iter())
        else:
            break
    assert b"\0\3" in met


def test_a_restored_filter_with_ttl_lives_on(any_client: redis.Redis) -> None:
    """It keeps the saved filter's remaining time to live in every shard, or has none."""
    for ttl in (None, 500):
        f = ShardedBloomFilter(any_client, f"seen-{ttl}", capacity=5_000, error_rate=0.01, shards=4, ttl=ttl)
        f.add_many(ITEMS)
        ShardedBloomFilter.restore(any_client, f"copy-{ttl}", io.BytesIO(saved(f)))
        left = [
            any_client.pttl(key) for key in any_client.scan_iter(f"*copy-{ttl}*") if b"receipt" not in key
        ]
        assert len(left) == 5
        assert {each if each < 0 else round(each / 1e5) for each in left} == {5 if ttl else -1}


def test_a_sharded_filter_that_may_not_live_on(any_server: Server, any_client: redis.Redis) -> None:
    """Without the right to PERSIST the restore raises, though the filter can be opened."""
    f = ShardedBloomFilter(any_client, "seen", capacity=5_000, error_rate=0.01, shards=4)
    f.add_many(ITEMS)
    rule = ("reset", "on", ">secret", "~*", "+@all", "-persist")
    any_client.execute_command("ACL", "SETUSER", "worker", *rule)  # type: ignore[no-untyped-call]  # redis-py has it so
    client = any_server.client(username="worker", password="secret")  # noqa: S106 - a test's
    with client, pytest.raises(ServerRefusedError, match="NOPERM"):
        ShardedBloomFilter.restore(client, "copy", io.BytesIO(saved(f)))
    assert all(ShardedBloomFilter.open(any_client, "copy").contains_many(ITEMS))
    assert any_client.pttl("copy") == -1


def test_another_user_of_a_shared_name_notices(any_client: redis.Redis) -> None:
    """A filter restored over a deleted one is another filter, so old objects raise."""
    f = made(any_client, "blocked")
    data = saved(f)
    BloomFilter.open(any_client, "seen").delete()
    BloomFilter.restore(any_client, "seen", io.BytesIO(data))
    with pytest.raises(FilterLostError):
        f.add("x")


def test_a_rotating_filter_comes_back_without_what_it_forgot(any_client: redis.Redis) -> None:
    """Expired items are not found; if all have expired, the filter is empty and takes items."""
    with later(timedelta(hours=-1)), connect("memory://") as client:
        f = RotatingBloomFilter(client, "seen", capacity=100, error_rate=0.01, window=60)
        f.add("old")
        data = saved(f)
    restored = RotatingBloomFilter.restore(any_client, "copy", io.BytesIO(data))
    assert not restored.contains("old")
    assert restored.add("old")
    with pytest.raises(FilterExistsError):
        RotatingBloomFilter.restore(any_client, "copy", io.BytesIO(data))


def test_items_from_before_are_saved_while_others_add(any_server: Server) -> None:
    """A copy made during adds has every item added before it began."""
    done = threading.Event()

    def add() -> int:
        with any_server.client() as own:
            other, number = BloomFilter.open(own, "seen"), 10_000
            while not done.is_set():
                other.add_many(range(number, number := number + 500))
        return number

    with any_server.client() as client, ThreadPoolExecutor() as threads:
        f = BloomFilter(client, "seen", capacity=2_000_000, error_rate=0.01)
        f.update(range(1000))
        adding = threads.submit(add)
        try:
            for turn in range(5):
                f.add(f"before-{turn}")
                copy = f.copy(client, f"copy-{turn}")
                assert all(copy.contains_many([*range(1000), *(f"before-{i}" for i in range(turn + 1))]))
        finally:
            done.set()
        assert adding.result() > 10_000


def test_a_filter_that_is_cleared_meanwhile_is_not_saved(any_client: redis.Redis, tmp_path: Path) -> None:
    """The call raises, and the file stays as it was."""
    f = BloomFilter(any_client, "seen", capacity=2_000_000, error_rate=0.01)
    f.update(range(1000))
    path = tmp_path / "seen.bloom"
    path.write_bytes(b"before")

    def clear(done: int, _: int) -> None:
        if done == 8 * PIECE_BYTES:
            BloomFilter.open(any_client, "seen").clear()

    with pytest.raises(FilterLostError):
        f.save(path, progress=clear)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_filter_that_is_cleared_meanwhile_is_not_copied(bloom: Any, any_client: redis.Redis) -> None:
    """The call raises, and no key of the copy is left."""
    f = bloom(any_client, "seen", capacity=2_000_000, error_rate=0.01)
    f.update(range(1000))
    written: list[bytes] = []

    def clear(done: int, _: int) -> None:
        if done == 8 * PIECE_BYTES:
            written.extend(any_client.scan_iter("*copy*written*"))
            BloomFilter.open(any_client, "seen").clear()

    with pytest.raises(FilterLostError, match="'seen' was cleared"):
        bloom.copy(f, any_client, "copy", progress=clear)
    assert written
    assert not any_client.keys("*copy*")


def test_progress_counts_bytes(any_client: redis.Redis) -> None:
    """Progress ends at the total number of bytes."""
    f = BloomFilter(any_client, "seen", capacity=2_000_000, error_rate=0.01)
    f.add("x")
    calls: list[tuple[int, int]] = []
    f.copy(any_client, "copy", progress=lambda *each: calls.append(each))
    assert len(calls) > 1
    assert calls[-1] == (calls[0][1], calls[0][1])
    assert f.info().size_bytes - 64 == calls[-1][1]


def test_encode_comes_along(any_client: redis.Redis) -> None:
    """A copy uses its filter's `encode`; a restored filter must be given it."""
    encode = bloomredis.keyed(b"0123456789abcdef")
    f = BloomFilter[Any](any_client, "seen", capacity=1000, error_rate=1e-6, encode=encode)
    f.add("x")
    assert "x" in f.copy(any_client, "copy")
    data = saved(f)
    assert "x" in BloomFilter[Any].restore(any_client, "with", io.BytesIO(data), encode=encode)
    with pytest.raises(FilterMismatchError, match="encode"):
        BloomFilter[Any].restore(any_client, "without", io.BytesIO(data))
    assert any_client.keys("*without*") == []


def test_bitmaps_of_other_systems_are_not_saved(any_client: redis.Redis) -> None:
    """They have no header; the error names an alternative."""
    f = BloomFilter(any_client, "seen", layout=compat.go_zero(1000))
    with pytest.raises(TypeError, match="DUMP"):
        f.save(io.BytesIO())


def test_a_file_is_a_path_or_binary(any_client: redis.Redis) -> None:
    """Another argument is refused, with its type and value."""
    f = BloomFilter(any_client, "seen", capacity=100, error_rate=0.01)
    with pytest.raises(TypeError, match="path or a binary file, not int 5"):
        f.save(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="path or a binary file, not StringIO"):
        f.save(io.StringIO())  # type: ignore[arg-type]


def test_a_filter_of_the_servers_module_is_not_saved(client: redis.Redis, tmp_path: Path) -> None:
    """The error comes before any I/O and names an alternative, whose copy gives the same answers."""
    f = BloomFilter(needs_module(client), "seen", **MODULE)
    f.add_many(ITEMS)
    client.config_resetstat()
    for call in (
        lambda: f.save(tmp_path / "seen.bloom"),
        lambda: f.copy(client, "copy"),
        lambda: f.merge(BloomFilter(client, "other", capacity=1000, error_rate=0.01)),
    ):
        with pytest.raises(TypeError, match=r"server's own module.*DUMP and RESTORE.*add the items"):
            call()
    sent = {name.lower() for name in client.info("commandstats")}
    assert not [name for name in sent if name.startswith(("cmdstat_eval", "cmdstat_bf."))]
    assert not list(tmp_path.iterdir())
    client.restore("copy", 0, cast("bytes", client.dump("seen")))
    assert BloomFilter.open(client, "copy").contains_many(ASKED) == f.contains_many(ASKED)


@pytest.mark.parametrize("kind", ["scaling", "sharded"])
def test_what_is_written_lives_on_while_more_is(
    any_client: redis.Redis, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finished parts are renewed once a minute while others are written."""
    data = saved(made(any_client, kind))
    clock = SimpleNamespace(now=partial(next, count(0.0, 40.0)))  # each reading is 40 seconds after the last
    monkeypatch.setattr(restore, "clock", clock)
    client: Any = Mortal(any_client, 10_000)
    f = getattr(bloomredis, KINDS[kind][0]).restore(client, "copy", io.BytesIO(data))
    assert all(f.contains_many(ITEMS))
    renewed = [command[1] for command in client.sent if command[0] == "PEXPIRE"]
    assert len({key for key in renewed if b"written:" in key}) >= 2


def test_parts_that_vanish_meanwhile_are_an_error(any_client: redis.Redis) -> None:
    """If a part is evicted during the restore, the call raises, and no filter exists."""
    f = BloomFilter(any_client, "seen", capacity=2_000_000, error_rate=0.01)
    f.update(range(50_000))

    def evict(done: int, _: int) -> None:
        if done == 8 * PIECE_BYTES:
            any_client.unlink(*any_client.scan_iter("*written*"))

    with pytest.raises(FilterLostError, match="nothing was stored under that name"):
        f.copy(any_client, "copy", progress=evict)
    assert not any_client.exists("copy")


def test_a_class_of_a_programs_own_is_restored(any_client: redis.Redis) -> None:
    """A subclass in a program is restored as the class that it derives from."""

    class Seen(BloomFilter):
        """A program's own subclass."""

    file = io.BytesIO(saved(made(any_client, "blocked")))
    assert type(Seen.restore(any_client, "copy", file)) is Seen
