"""The encoding of items is part of the stored filter: another `encode=`, or none, is refused."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from bloomredis import (
    BloomFilter,
    CountingBloomFilter,
    FilterLostError,
    FilterMismatchError,
    LocalFilter,
    RotatingBloomFilter,
    ScalingBloomFilter,
    ShardedBloomFilter,
    keyed,
)
from bloomredis.bits import encoding
from tests.support.commands import printed, run_command
from tests.support.modules import needs_module
from tests.support.servers import Server
from tests.support.values import for_each

SIZES: Final[dict[str, dict[str, Any]]] = {
    "BloomFilter": {"capacity": 1000, "error_rate": 1e-6},
    "CountingBloomFilter": {"capacity": 1000, "error_rate": 1e-6},
    "ScalingBloomFilter": {"capacity": 10, "error_rate": 1e-6},
    "RotatingBloomFilter": {"capacity": 10, "error_rate": 1e-6, "window": 600},
    "ShardedBloomFilter": {"capacity": 1000, "error_rate": 1e-6, "shards": 2},
}
CLASSES: Final = {
    each.__name__: each
    for each in (
        BloomFilter,
        CountingBloomFilter,
        ScalingBloomFilter,
        RotatingBloomFilter,
        ShardedBloomFilter,
    )
}
ITEMS: Final = [f"{i}" for i in range(40)]
SECRET: Final = keyed(b"0123456789abcdef")
ENCODINGS: Final[dict[str, Callable[[Any], bytes] | None]] = {
    "none": None,
    "a function": lambda item: item.encode("utf-16"),
    "a secret": SECRET,
    "another secret": keyed(b"fedcba9876543210"),
}


def same_secret() -> Any:
    """Return `keyed` with the same secret, as another process makes it."""
    return keyed("0123456789abcdef")


@pytest.mark.parametrize("kind", SIZES)
@for_each("made", ENCODINGS)
def test_another_encoding_is_refused(client: redis.Redis, bloom: Any, kind: str, made: str) -> None:
    """Every call refuses it, with the parameters and without, before anything is added."""
    f = bloom(client, "seen", kind=kind, encode=ENCODINGS[made], **SIZES[kind])
    assert f.add_many(ITEMS) == [True] * len(ITEMS)
    for given, encode in ENCODINGS.items():
        other = bloom(client, "seen", kind=kind, encode=encode, **SIZES[kind])
        if given == made:
            assert other.add_many(ITEMS) == [False] * len(ITEMS)
            assert bloom.open(client, "seen", kind, encode=encode).contains_many(ITEMS) == [True] * len(ITEMS)
            continue
        before = f.info().count
        for call in (other.add, other.contains, other.claim):
            with pytest.raises(FilterMismatchError, match=r"encode=|secret"):
                call("x")
        for call in (other.add_many, other.update):
            with pytest.raises(FilterMismatchError):
                call(ITEMS)
        with pytest.raises(FilterMismatchError):
            bloom.open(client, "seen", kind, encode=encode)
        assert f.info().count == before


@for_each("made", ENCODINGS)
def test_filters_of_the_module(any_client: redis.Redis, bloom: Any, made: str) -> None:
    """Their markers record the encoding, also after a clear, and are not counted as items."""
    needs_module(any_client)
    size = {"capacity": 1000, "error_rate": 0.01, "layout": "module"}
    f = bloom(any_client, "seen", encode=ENCODINGS[made], **size)
    for _ in range(2):
        assert sum(f.add_many(ITEMS)) >= len(ITEMS) - 2
        assert (f.info().capacity, f.info().count) == (1000, sum(map(bool, f.contains_many(ITEMS))))
        for given, encode in ENCODINGS.items():
            if given == made:
                assert all(bloom(any_client, "seen", encode=encode, **size).contains_many(ITEMS))
                assert all(bloom.open(any_client, "seen", encode=encode).contains_many(ITEMS))
                continue
            for parameters in (size, {"layout": "module"}):
                with pytest.raises(FilterMismatchError, match=r"encode=|secret"):
                    bloom(any_client, "seen", encode=encode, **parameters).add("x")
            with pytest.raises(FilterMismatchError, match=r"encode=|secret"):
                bloom.open(any_client, "seen", encode=encode)
        f.clear()


def test_a_filter_of_another_program_that_is_adopted(any_client: redis.Redis) -> None:
    """The first object that opens it sets the encoding."""
    needs_module(any_client)
    client: Any = any_client
    client.execute_command("BF.RESERVE", "seen", 0.01, 1000)
    f = BloomFilter[Any].open(any_client, "seen", encode=SECRET)
    assert f.add("x")
    assert BloomFilter[Any].open(any_client, "seen", encode=same_secret()).contains("x")
    for encode in (None, ENCODINGS["another secret"]):
        with pytest.raises(FilterMismatchError, match=r"encode=|secret"):
            BloomFilter[Any].open(any_client, "seen", encode=encode)


@for_each("kind", [*SIZES])
def test_a_copy_and_a_file_have_it(any_client: redis.Redis, kind: str) -> None:
    """A copy, a restored filter and a local file have the filter's encoding."""
    f = CLASSES[kind](any_client, "seen", encode=SECRET, **SIZES[kind])
    f.add_many(ITEMS)
    copied = f.copy(any_client, "copy")
    saved = io.BytesIO()
    f.save(saved)
    restored = CLASSES[kind].restore(
        any_client, "restored", io.BytesIO(saved.getvalue()), encode=same_secret()
    )
    for each in (copied, restored):
        assert all(each.contains_many(ITEMS))
        with pytest.raises(FilterMismatchError, match="holds encoded items"):
            CLASSES[kind].open(any_client, each.name)
    with pytest.raises(FilterMismatchError, match="another secret"):
        CLASSES[kind].restore(
            any_client, "no", io.BytesIO(saved.getvalue()), encode=ENCODINGS["another secret"]
        )
    assert any_client.keys("*no*") == []


def test_a_file_that_is_opened_here(any_client: redis.Redis, tmp_path: Path) -> None:
    """A file that is opened locally needs the `encode` of its filter."""
    f = BloomFilter[Any](any_client, "seen", encode=SECRET, **SIZES["BloomFilter"])
    f.add_many(ITEMS)
    f.save(tmp_path / "file")
    assert all(LocalFilter[Any].open(tmp_path / "file", encode=same_secret()).contains_many(ITEMS))
    with pytest.raises(FilterMismatchError, match="holds encoded items"):
        LocalFilter.open(tmp_path / "file")
    assert f.snapshot().contains("1")


def test_filters_are_merged_that_have_the_same(any_client: redis.Redis) -> None:
    """A merge refuses another encoding, whose bits belong to other items."""
    one, two, other = (
        BloomFilter[Any](any_client, name, encode=encode, **SIZES["BloomFilter"])
        for name, encode in (("one", SECRET), ("two", same_secret()), ("other", None))
    )
    for f in (one, two, other):
        f.add(f.name)
    one.merge(two)
    assert one.contains_many(["one", "two"]) == [True, True]
    with pytest.raises(FilterMismatchError, match="encoding"):
        one.merge(other)


def test_every_layer_of_an_adopted_filter_keeps_it(any_client: redis.Redis) -> None:
    """The first layer is the adopted filter, with its items; later layers have its encoding."""
    BloomFilter[Any](any_client, "seen", encode=SECRET, **SIZES["BloomFilter"]).add_many(ITEMS)
    with pytest.raises(FilterMismatchError, match="holds encoded items"):
        ScalingBloomFilter.adopt(any_client, "seen")
    grown = ScalingBloomFilter[Any].adopt(any_client, "seen", encode=same_secret())
    grown.add_many(range(3000))
    assert len(grown.info().layers) > 1
    assert all(grown.contains_many([*ITEMS, *range(3000)]))
    with pytest.raises(FilterMismatchError, match="holds encoded items"):
        ScalingBloomFilter.open(any_client, "seen")


def test_a_filter_without_encoding_is_as_it_was(any_client: redis.Redis) -> None:
    """Its header has no new bit."""
    BloomFilter(any_client, "seen", **SIZES["BloomFilter"]).create()
    assert any_client.getrange("seen", 16, 19) == bytes(4)


def test_a_secret_leaves_a_fingerprint() -> None:
    """Each secret has its own fingerprint, never that of a function, and the same in each process."""
    numbers = [encoding.number_of(keyed(f"{i:016}")) for i in range(1000)]
    assert len(set(numbers)) == len(numbers)
    assert all(number is not None and encoding.OWN < number < 2**32 for number in numbers)
    assert encoding.number_of(same_secret()) == encoding.number_of(SECRET)
    assert {same_secret(), SECRET} == {SECRET} != {keyed("another secret of mine")}


@for_each("kind", [*SIZES])
def test_open_takes_what_is_not_stored(any_client: redis.Redis, bloom: Any, kind: str) -> None:
    """`open` takes every option of the class, but no parameter of the filter."""
    bloom(any_client, "seen", kind=kind, **SIZES[kind]).add("x")
    options: dict[str, Any] = {
        "on_lost": "raise",
        "retry_safe": False,
        "min_replicas": 0,
        "replica_timeout": 2.0,
    }
    if kind == "BloomFilter":
        options |= {"on_full": "raise", "local_cache": 5.0}
    f = bloom.open(any_client, "seen", kind, **options)
    assert f.contains("x")
    any_client.flushall()
    with pytest.raises(FilterLostError, match="seen"):
        f.add("y")
    for parameter in {"capacity": 10, "window": 10, "shards": 3, "layout": "classic"}.items():
        with pytest.raises(TypeError, match=f"{kind}.open.. takes no {parameter[0]}"):
            bloom.open(any_client, "seen", kind, **dict([parameter]))


@for_each("kind", [*SIZES])
def test_commands_that_need_no_item(
    any_server: Server, any_client: redis.Redis, kind: str, tmp_path: Path
) -> None:
    """They work on a filter with encoded items; commands that take items refuse it and add nothing."""
    f = CLASSES[kind](any_client, "seen", encode=SECRET, **SIZES[kind])
    f.add_many(ITEMS)
    count, where = f.info().count, ("--url", any_server.url)
    assert b"seen" in printed("info", "seen", *where)
    printed("save", "seen", str(tmp_path / "file"), *where)
    printed("restore", "again", str(tmp_path / "file"), *where)
    printed("copy", "seen", "copy", *where)
    for command in (("add", "seen", "x"), ("check", "seen", "x")):
        done = run_command(*command, *where)
        assert done.returncode == 2, done
        assert b"encoded by the program" in done.stderr
    assert f.info().count == count
    for name in ("again", "copy", "seen"):
        printed("delete", name, *where)
    assert [key for key in any_client.keys("*") if b"receipt" not in key] == []


def test_a_function_around_a_secret(any_client: redis.Redis) -> None:
    """A function that calls `keyed` is another encoding, even with its attributes copied."""

    @functools.wraps(SECRET)
    def lowered(item: Any) -> bytes:
        return SECRET(item.lower())

    BloomFilter(any_client, "seen", encode=SECRET, **SIZES["BloomFilter"]).add("A")
    with pytest.raises(FilterMismatchError):
        BloomFilter(any_client, "seen", encode=lowered, **SIZES["BloomFilter"]).add("A")
