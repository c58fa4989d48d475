"""Calls that meet a loss, follow one or end one are interrupted at exact points: no half event stays."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import pytest
import redis

from bloomredis import (
    BatchInterruptedError,
    BloomFilter,
    Claim,
    CountingBloomFilter,
    FilterLostError,
    RotatingBloomFilter,
    ScalingBloomFilter,
    ShardedBloomFilter,
)
from tests.support.points import Point, interrupted_at, raised_at
from tests.support.sizes import sized

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="other versions of CPython look for signals elsewhere"
)

Make = Callable[..., Any]
KINDS: Final[dict[str, tuple[Any, dict[str, Any]]]] = {
    "plain": (BloomFilter, {}),
    "counting": (CountingBloomFilter, {}),
    "scaling": (ScalingBloomFilter, {}),
    "rotating": (RotatingBloomFilter, {"window": 3600}),
    "sharded": (ShardedBloomFilter, {"shards": 2}),
}
EVERY_KIND: Final = pytest.mark.parametrize("kind", KINDS)


class SoftTimeLimit(Exception):  # noqa: N818 - as in Celery
    """An interrupt that is an `Exception`."""


def maker(client: redis.Redis, kind: str) -> Make:
    """Return a function that makes an object of one filter."""
    cls, options = KINDS[kind]

    def make(**more: Any) -> Any:
        return cls(client, "seen", capacity=1000, error_rate=1e-6, **options, **more)

    return make


def points(step: int, seed: int, attempt: Callable[[int], Point | str | None]) -> Iterator[None]:
    """Make attempts at every `step`-th point, from one that the seed draws, until the call has no more."""
    for number in itertools.count(seed % step, step):
        if attempt(number) is None:
            assert number > step, "the call has no points"
            return
        yield


def lose(client: redis.Redis) -> None:
    """Delete all keys of the filter."""
    client.delete(*client.keys("*"))


def add(f: Any, item: str) -> bool | None:
    """Add an item; return None if the filter is lost."""
    try:
        answer: bool = f.add(item)
    except FilterLostError:
        return None
    return answer


@sized("step", make_test=17, make_test_all=1)
@EVERY_KIND
def test_a_call_that_follows_a_loss(any_client: redis.Redis, kind: str, step: int, seed: int) -> None:
    """An object that goes on after an acknowledged loss goes on, whatever has interrupted its first call."""
    make = maker(any_client, kind)

    def attempt(number: int) -> Point | None:
        any_client.flushall()
        first, second = make(), make()
        assert first.add("old")
        assert second.contains("old")
        lose(any_client)
        assert [add(each, "x") for each in (first, second)] == [None, None]
        first.acknowledge()
        where = interrupted_at(number, lambda: second.add("mine"))
        assert [add(second, f"later-{i}") for i in range(3)] == [True] * 3, where
        return where

    for _ in points(step, seed, attempt):
        pass


@sized("step", make_test=23, make_test_all=1)
@pytest.mark.parametrize("on_lost", ["raise", "recreate"])
@EVERY_KIND
def test_a_call_that_meets_a_loss(
    any_client: redis.Redis, kind: str, on_lost: str, step: int, seed: int
) -> None:
    """The loss is told once more at most; after the acknowledgement the object goes on."""
    make = maker(any_client, kind)

    def attempt(number: int) -> Point | None:
        any_client.flushall()
        first, second = make(), make(on_lost=on_lost)
        assert first.add("old")
        assert second.contains("old")
        lose(any_client)
        make().add("of another program")
        where = interrupted_at(number, lambda: second.add("x"))
        assert add(first, "x") is None
        first.acknowledge()
        told = add(second, "told")
        assert on_lost == "raise" or told is True, where
        assert [add(second, f"later-{i}") for i in range(3)] == [True] * 3, where
        return where

    for _ in points(step, seed, attempt):
        pass


@sized("step", make_test=23, make_test_all=1)
@EVERY_KIND
def test_an_acknowledgement_or_a_clear(any_client: redis.Redis, kind: str, step: int, seed: int) -> None:
    """Interrupted anywhere it can be repeated, and nobody goes on silently with what he does not know."""
    make = maker(any_client, kind)
    for end in ("acknowledge", "clear"):

        def attempt(number: int, end: str = end) -> Point | None:
            any_client.flushall()
            f = make()
            assert f.add("old")
            lose(any_client)
            assert add(f, "x") is None
            where = interrupted_at(number, getattr(f, end))
            again = add(f, "old")
            assert again in (True, None), where
            if again is None:
                getattr(f, end)()
                assert f.add("old")
            assert f.add("old") is False
            return where

        for _ in points(step, seed, attempt):
            pass


@sized("step", make_test=97, make_test_all=1)
@EVERY_KIND
def test_a_batch_of_claims(any_client: redis.Redis, kind: str, step: int, seed: int) -> None:
    """The same call on the same object gets the claims that the interrupted one has made."""
    make, items = maker(any_client, kind), [f"doc-{i}" for i in range(20)]

    def attempt(number: int) -> Point | None:
        any_client.flushall()
        f = make()
        f.add("warm")
        where = interrupted_at(number, lambda: f.claim_many(items, lease=3600))
        if where is None or where.returned:
            return where
        claims = f.claim_many(items, lease=3600)
        assert {claim.state for claim in claims} == {"claimed"}, where
        assert {claim.state for claim in f.claim_many(items, lease=3600)} == {"busy"}, where
        return where

    for _ in points(step, seed, attempt):
        pass


@sized("step", make_test=61, make_test_all=1)
@EVERY_KIND
def test_a_batch_of_commits(any_client: redis.Redis, kind: str, step: int, seed: int) -> None:
    """The same call again ends each of the claims, and each item is in the filter."""
    make, items = maker(any_client, kind), [f"doc-{i}" for i in range(20)]

    def attempt(number: int) -> Point | None:
        any_client.flushall()
        f = make()
        claims = f.claim_many(items, lease=3600)
        assert all(claims)
        where = interrupted_at(number, lambda: f.commit_many(claims))
        assert f.commit_many(claims) == ["done"] * 20, where
        assert all(f.contains_many(items)), where
        return where

    for _ in points(step, seed, attempt):
        pass


@sized("step", make_test=17, make_test_all=1)
@EVERY_KIND
@pytest.mark.parametrize("verb", ["claim_many", "commit_many", "release_many"])
def test_an_interrupt_of_a_batch_of_claims(
    any_client: redis.Redis, kind: str, verb: str, step: int, seed: int
) -> None:
    """It reaches the caller, alone or as the reason why the batch stopped, or the batch is whole."""
    make, items = maker(any_client, kind), [f"doc-{i}" for i in range(4)]
    after = {"claim_many": "claimed", "commit_many": "done", "release_many": "released"}[verb]

    def call(f: Any) -> Callable[[], list[str]]:
        if verb == "claim_many":
            return lambda: [claim.state for claim in f.claim_many(items, lease=3600)]
        claims = f.claim_many(items, lease=3600)
        if verb == "release_many":
            claims.append(Claim.from_token(f, claims[0].token))  # one item is in two scripts
        return lambda: getattr(f, verb)(claims)

    def attempt(number: int) -> str | None:
        any_client.flushall()
        f = make()
        f.add("warm")
        batch, reasons = call(f), list[BaseException | None]()
        with raised_at(number, SoftTimeLimit) as where:
            try:
                assert set(batch()) == {after}, where
            except SoftTimeLimit:
                pass
            except BatchInterruptedError as error:
                reasons.append(error.__cause__)
        assert all(isinstance(each, SoftTimeLimit) for each in reasons), where
        return where[0] if where else None

    for _ in points(step, seed, attempt):
        pass


@EVERY_KIND
def test_a_loss_that_an_exporter_meets(any_client: redis.Redis, kind: str) -> None:
    """`create()` raises a loss that no caller was told of; `acknowledge()` ends it."""
    f = maker(any_client, kind)()
    f.add("paid")
    lose(any_client)
    with suppress(FilterLostError):
        f.info()
    with pytest.raises(FilterLostError):
        f.create()
    f.acknowledge()
    assert f.add("paid")


@sized("step", make_test=61, make_test_all=1)
@EVERY_KIND
def test_a_batch_of_adds(any_client: redis.Redis, kind: str, step: int, seed: int) -> None:
    """The same call on the same object gets the answers that the interrupted one has received."""
    make, items = maker(any_client, kind), [f"doc-{i}" for i in range(20)]

    def attempt(number: int) -> Point | None:
        any_client.flushall()
        f = make()
        f.add("warm")
        where = interrupted_at(number, lambda: f.add_many(items))
        if where is not None and not where.returned:
            assert all(f.add_many(items)), where
        assert not any(f.add_many(items)), where
        return where

    for _ in points(step, seed, attempt):
        pass
