"""The union of filters."""

from __future__ import annotations

import io
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

import bloomredis
import bloomredis.asyncio as asyncio_half
from bloomredis import (
    BloomFilter,
    FilterFullError,
    FilterLostError,
    FilterMismatchError,
    LocalFilter,
    OutcomeUnknownError,
    ShardedBloomFilter,
    compat,
)
from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.operations.whole.files import Reader
from bloomredis.protocol.pieces import PIECE_BYTES
from tests.support.inside import inside
from tests.support.losing import LosingClient
from tests.support.saving import KINDS
from tests.support.servers import Server, binaries, running
from tests.support.values import for_each

LARGE: dict[str, Any] = {"capacity": 2_000_000, "error_rate": 0.01}
SMALL: dict[str, Any] = {"capacity": 2_000, "error_rate": 0.01}
SHARDED: dict[str, Any] = {"kind": "ShardedBloomFilter", "shards": 4, **SMALL}
ONE, OTHER = range(600), range(400, 1000)
LAYOUTS: dict[str, dict[str, Any]] = {
    "blocked": SMALL,
    "classic": SMALL | {"layout": "classic"},
    "large": LARGE,
    "sharded": SHARDED,
}
EACH_LAYOUT = pytest.mark.parametrize("layout", LAYOUTS)


def bits(client: redis.Redis, name: str) -> set[Any]:
    """Return the bits of all keys of a filter."""
    keys = [key for key in client.scan_iter(f"*{name}*") if b"receipt" not in key]
    strings: list[Any] = [client.get(key) for key in keys if client.strlen(key) > 300]
    return {string[64:] for string in strings}


@EACH_LAYOUT
def test_the_union_in_the_server(bloom: Any, client: redis.Redis, layout: str) -> None:
    """The union has the bits of both and about their count; the other filter stays the same."""
    one, other, both = (bloom(client, name, **LAYOUTS[layout]) for name in ("one", "other", "both"))
    one.add_many(ONE)
    other.add_many(OTHER)
    both.add_many([*ONE, *OTHER])
    before = bits(client, "other")
    one.merge(getattr(other, "_filter", other))
    if layout != "sharded":  # the shards' keys are equal, and so are their shares
        assert bits(client, "one") == bits(client, "both")
    assert bits(client, "other") == before
    assert all(one.contains_many([*ONE, *OTHER]))
    assert one.info().fill_ratio == both.info().fill_ratio
    assert abs(one.info().count - 1000) < 30
    assert not client.exists("{one}:segment:old", "{one}:segment:new")


@EACH_LAYOUT
def test_the_union_of_two_servers(bloom: Any, client: redis.Redis, layout: str) -> None:
    """Through the client, the union of two servers' filters is the same."""
    with running(binaries()["redis-6.2"]) as server, server.client() as away:
        one, other = bloom(client, "one", **LAYOUTS[layout]), bloom(away, "other", **LAYOUTS[layout])
        both = bloom(client, "both", **LAYOUTS[layout])
        one.add_many(ONE)
        other.add_many(OTHER)
        both.add_many([*ONE, *OTHER])
        one.merge(getattr(other, "_filter", other))
        assert all(one.contains_many([*ONE, *OTHER]))
        assert one.info().fill_ratio == both.info().fill_ratio
        assert abs(one.info().count - 1000) < 30


@pytest.mark.parametrize("layout", ["blocked", "classic", "sharded"])
def test_a_file_is_merged_into_a_filter(bloom: Any, client: redis.Redis, layout: str, tmp_path: Path) -> None:
    """A saved filter or a snapshot is merged without its original server."""
    one, other = (bloom(client, name, **LAYOUTS[layout]) for name in ("one", "other"))
    one.add_many(ONE)
    other.add_many(OTHER)
    other.save(tmp_path / "other.bloom")
    other.delete()
    one.merge(LocalFilter.open(tmp_path / "other.bloom"))
    assert all(one.contains_many([*ONE, *OTHER]))


def test_blocks_of_another_size_are_refused(any_client: redis.Redis) -> None:
    """Filters that differ only in block size are refused, on the server and as copies."""
    one: Any = BloomFilter(any_client, "one", **SMALL)
    one.add_many(ONE)
    before, head = any_client.get("one"), inside(one).stored.head
    wide = replace(head, block_bits=256, generation=bytes(range(8)))
    any_client.set("other", wide.pack() + bytes(wide.size_bytes - HEADER_BYTES))
    other = BloomFilter.open(any_client, "other")
    for theirs in (other, other.snapshot()):
        with pytest.raises(FilterMismatchError, match="block_bits 128, and 'other' has block_bits 256"):
            one.merge(theirs)
    assert any_client.get("one") == before


def test_other_parameters_are_refused(any_client: redis.Redis) -> None:
    """The error gives both values, and nothing changes."""
    one = BloomFilter(any_client, "one", **SMALL)
    one.add_many(ONE)
    before = any_client.get("one")
    others: list[tuple[dict[str, Any], str]] = [
        (SMALL | {"capacity": 6000}, "capacity 2000, and 'other' has capacity 6000"),
        (SMALL | {"error_rate": 0.02}, "error_rate 0.01, and 'other' has error_rate 0.02"),
        (SMALL | {"layout": "classic"}, "layout blocked, and 'other' has layout classic"),
    ]
    for parameters, message in others:
        other = BloomFilter(any_client, "other", **parameters)
        other.add("x")
        with pytest.raises(FilterMismatchError, match=message):
            one.merge(other)
        other.delete()
    shards = [
        ShardedBloomFilter(any_client, f"s{n}", shards=n, capacity=2000, error_rate=0.01) for n in (4, 5)
    ]
    shards[1].create()
    with pytest.raises(FilterMismatchError):
        shards[0].merge(shards[1])
    assert any_client.get("one") == before


@for_each("kind", ["counting", "scaling", "rotating"])
def test_classes_that_are_not_merged(any_client: redis.Redis, kind: str) -> None:
    """The error says what to do instead, whatever the other filter is."""
    of, parameters = KINDS[kind]
    one, other = (getattr(bloomredis, of)(any_client, name, **parameters) for name in ("one", "other"))
    for each in (one, other):
        each.add("x")
    with pytest.raises(TypeError, match=r"cannot be merged: (ask both|add the items)"):
        one.merge(other)
    with pytest.raises(TypeError, match=r"cannot be merged: (ask both|add the items)"):
        one.merge(BloomFilter(any_client, "plain", **SMALL))
    with pytest.raises(TypeError, match=f"'plain' is merged with another BloomFilter .*, not with {of}$"):
        BloomFilter(any_client, "plain", **SMALL).merge(one)
    of_asyncio: Any = asyncio_half.BloomFilter.from_url("memory://", "asyncio", **SMALL)
    with pytest.raises(TypeError, match=r"not with one of bloomredis\.asyncio$"):
        BloomFilter(any_client, "plain", **SMALL).merge(of_asyncio)
    with pytest.raises(TypeError, match="another system"):
        BloomFilter(any_client, "b", layout=compat.go_zero(100)).merge(
            BloomFilter(any_client, "c", layout=compat.go_zero(100))
        )


@pytest.mark.parametrize("layout", ["blocked", "classic", "sharded"])
def test_a_filter_merged_with_itself_stays(
    bloom: Any, any_client: redis.Redis, layout: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing changes, also through another object; an overfull filter gives no second warning."""
    one, same = (bloom(any_client, "one", **LAYOUTS[layout] | {"capacity": 400}) for _ in range(2))
    one.add_many(ONE)
    about, before = one.info(), bits(any_client, "one")
    caplog.clear()
    one.merge(getattr(same, "_filter", same))
    assert (one.info(), bits(any_client, "one"), caplog.text) == (about, before, "")


def test_a_file_has_what_an_older_state_lacks(bloom: Any, any_client: redis.Redis, tmp_path: Path) -> None:
    """A file of the same filter restores what a server lost when it returned to an earlier dump."""
    one = bloom(any_client, "one", **SMALL)
    one.add_many(ONE)
    earlier: Any = any_client.dump("one")
    one.add_many(OTHER)
    one.save(tmp_path / "one.bloom")
    any_client.restore("one", 0, earlier, replace=True)
    one = bloom(any_client, "one", **SMALL)
    assert not all(one.contains_many(OTHER))
    one.merge(LocalFilter.open(tmp_path / "one.bloom"))
    assert all(one.contains_many([*ONE, *OTHER]))
    assert abs(one.info().count - 1000) < 30


@for_each("layout", ["blocked", "sharded"])
def test_twins_are_merged(bloom: Any, any_client: redis.Redis, layout: str) -> None:
    """Filters under the same keys on two servers, which have diverged, are merged."""
    with running(binaries()["redis-6.2"]) as server, server.client() as away:
        one = bloom(any_client, "one", **LAYOUTS[layout])
        one.add_many(range(400, 600))
        for key in any_client.scan_iter("*one*"):
            if b"receipt" not in key:
                away.set(key, any_client.get(key))
        twin = bloom(away, "one", **LAYOUTS[layout])
        twin.add_many(OTHER)
        one.merge(getattr(twin, "_filter", twin))
        assert all(one.contains_many(OTHER))


def test_a_copied_key_is_merged(any_client: redis.Redis) -> None:
    """COPY keeps the identity, and items added to the copy come back by a merge."""
    one = BloomFilter(any_client, "one", **SMALL)
    one.add_many(ONE)
    any_client.copy("one", "other")
    BloomFilter.open(any_client, "other").add_many(OTHER)
    one.merge(BloomFilter.open(any_client, "other"))
    assert all(one.contains_many([*ONE, *OTHER]))


def test_an_overfull_union_warns(any_client: redis.Redis, caplog: pytest.LogCaptureFixture) -> None:
    """The log gives the estimated number of items and the capacity."""
    one, other = (BloomFilter(any_client, name, capacity=800, error_rate=0.01) for name in ("one", "other"))
    one.add_many(ONE)
    other.add_many(OTHER)
    with caplog.at_level(logging.WARNING):
        one.merge(other)
    assert "made for capacity 800" in caplog.text


def test_no_item_gets_into_an_overfull_union_that_refuses(any_client: redis.Redis) -> None:
    """The next add is refused, before its item is added."""
    small: dict[str, Any] = {"capacity": 100, "error_rate": 1e-6}
    one = BloomFilter(any_client, "one", on_full="raise", **small)
    other = BloomFilter(any_client, "other", **small)
    assert one.add("warm")
    other.add_many(range(150))
    one.merge(other)
    with pytest.raises(FilterFullError):
        one.add("x")


@for_each("layout", ["large", "sharded"])
def test_progress_counts_bytes(any_client: redis.Redis, layout: str) -> None:
    """Progress ends at the total number of bytes, for all shards together."""
    kind = getattr(bloomredis, str(LAYOUTS[layout].get("kind", "BloomFilter")))
    parameters = {key: value for key, value in LAYOUTS[layout].items() if key != "kind"}
    one, other = (kind(any_client, name, **parameters) for name in ("one", "other"))
    for each in (one, other):
        each.add_many(ONE)
    steps: list[tuple[int, int]] = []
    one.merge(other, progress=lambda done, total: steps.append((done, total)))
    total = sum(part.num_bytes for part in saved_parts(other))
    assert [done for done, _ in steps] == sorted({done for done, _ in steps})
    assert len(steps) > 1
    assert steps[-1] == (total, total)
    assert {of for _, of in steps} == {total}


def saved_parts(f: Any) -> Any:
    """Return the parts of a filter as they would be saved."""
    file = io.BytesIO()
    f.save(file)
    file.seek(0)
    return Reader(file).saved.parts


def test_what_others_add_meanwhile_stays(any_server: Server) -> None:
    """Concurrent adds are kept, whether the server or the client merges."""
    done = threading.Event()

    def add() -> list[int]:
        with any_server.client() as own:
            f, number = BloomFilter.open(own, "one"), 10_000_000
            while not done.is_set():
                f.add_many(range(number, number := number + 100))
        return [*range(10_000_000, number)]

    with any_server.client() as client, any_server.client() as second, ThreadPoolExecutor() as threads:
        one = BloomFilter(client, "one", **LARGE)
        one.create()
        adding = threads.submit(add)
        try:
            for turn in range(6):
                other = BloomFilter(second if turn % 2 else client, f"other-{turn}", **LARGE)
                other.update(range(turn * 1000, turn * 1000 + 1000))
                one.merge(other)
        finally:
            done.set()
        added = adding.result()
        assert len(added) > 100
        assert all(one.contains_many([*range(6000), *added]))


def test_a_lost_source_is_an_error(any_client: redis.Redis) -> None:
    """The parts merged before the loss stay; the caller can start again with the current filter."""
    one, other = (BloomFilter(any_client, name, **LARGE) for name in ("one", "other"))
    one.create()
    other.update(range(1000))

    class Clearing:
        """A client that clears the other filter before the second round trip."""

        pipelines = 0

        def execute_command(self, *command: Any, **options: Any) -> Any:
            return any_client.execute_command(*command, **options)  # type: ignore[no-untyped-call]

        def pipeline(self, *, transaction: bool) -> Any:
            self.pipelines += 1
            if self.pipelines == 2:
                BloomFilter.open(any_client, "other").clear()
            return any_client.pipeline(transaction=transaction)

    assert LARGE["capacity"] > 8 * PIECE_BYTES
    client: Any = Clearing()
    with pytest.raises(FilterLostError, match="'other' was cleared"):
        BloomFilter(client, "one").merge(BloomFilter(client, "other"))


def test_a_merge_with_a_lost_reply_is_done_again(any_client: redis.Redis) -> None:
    """The error says that it can be repeated, and the second call has the bits of both."""
    one, other = (BloomFilter(any_client, name, **SMALL) for name in ("one", "other"))
    one.add_many(ONE)
    other.add_many(OTHER)
    losing: Any = LosingClient(any_client)
    mine, theirs = BloomFilter(losing, "one"), BloomFilter(losing, "other")
    mine.create()
    theirs.create()
    sent = len(losing.sent)
    losing.lose = ["answer"] * 5 + ["lost"]
    with pytest.raises(OutcomeUnknownError, match="merge it again"):
        mine.merge(theirs)
    assert sent + 6 == len(losing.sent)
    mine.merge(theirs)
    assert all(one.contains_many([*ONE, *OTHER]))
