"""Filters in forked children, and copies of filters in other processes."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Sequence
from typing import Any

import pytest
import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BloomFilter, FilterLostError
from tests.support.background import Child
from tests.support.racing import winners
from tests.support.servers import Server
from tests.support.values import for_each

ITEMS = [f"https://example.org/page/{i}" for i in range(3000)]


def make(client: Any, **options: Any) -> BloomFilter:
    return BloomFilter(client, "seen", capacity=100_000, error_rate=1e-9, **options)


def _add_in_child(f: BloomFilter, items: Sequence[str], told: Any) -> None:
    told.put(f.add_many(items))


def test_a_forked_child_uses_the_filter(any_server: Server) -> None:
    """A parent and children that inherited its filter have one winner for each item."""
    with any_server.client() as client:
        f = make(client)
        f.add("warm")
        fork = multiprocessing.get_context("fork")
        told = fork.Queue()
        children = [fork.Process(target=_add_in_child, args=(f, ITEMS, told)) for _ in range(3)]
        for child in children:
            child.start()
        answers = [f.add_many(ITEMS), *(told.get(timeout=60) for _ in children)]
        for child in children:
            child.join()
    assert winners(answers, ITEMS) == {1: len(ITEMS)}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("error", [None, SystemExit])
def test_a_child_that_leaves_a_block_ends_no_claim(
    any_server: Server, error: type[BaseException] | None
) -> None:
    """A claim that the parent made and entered stays the parent's, however the child leaves the block."""
    with any_server.client() as client:
        f, other = make(client), make(client)
        with f.claim("a", renew=True) as claim:
            Child(lambda: claim.__exit__(error, None, None)).result()
            assert other.claim("a").state == "busy"
        assert claim.state == "done"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_may_end_a_claim_that_it_was_given(any_server: Server) -> None:
    """A claim can be ended by a child that enters its block or calls its methods."""
    with any_server.client() as client:
        f = make(client)
        claim = f.claim("a")

        def works() -> str:
            with claim:
                pass
            return claim.state

        assert Child(works).result() == "done"
        assert f.contains("a")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_answers_that_nobody_asked_for_stay_with_the_parent(any_server: Server) -> None:
    """A child that leaves a copied `dedupe` does not yield items that the parent will still yield."""
    with any_server.client() as client:
        f = make(client)
        new = f.dedupe(["a", "b", "c"])
        assert next(new) == "a"

        def leaves() -> list[bool]:
            new.close()  # type: ignore[attr-defined]  # close() of a generator
            return f.add_many(["b", "c"])

        assert Child(leaves).result() == [False, False]
        assert list(new) == ["b", "c"]


@for_each("cls", [BloomFilter, bloomredis.asyncio.BloomFilter])
def test_a_filter_pickles_without_its_client(any_server: Server, cls: Any) -> None:
    """The copy reports that it needs a client, and works with one."""
    module = redis if cls is BloomFilter else redis.asyncio
    f = cls(module.Redis(unix_socket_path=any_server.socket), "pickled", capacity=100, error_rate=0.01)
    copy = pickle.loads(pickle.dumps(f))  # noqa: S301 - its own pickle
    with any_server.client() as client:
        if cls is BloomFilter:
            with pytest.raises(RuntimeError, match="with_client"):
                copy.add("a")
            client.delete("pickled")
            assert copy.with_client(client).add("a")
            assert not f.add("a")
    assert copy.name == "pickled"


def test_a_pickled_filter_still_notices_a_loss(any_server: Server) -> None:
    """A pickle contains the identity of the stored filter, so its copy detects a loss."""
    with any_server.client() as client:
        f = make(client)
        f.add("a")
        copy = pickle.loads(pickle.dumps(f)).with_client(client)  # noqa: S301 - its own pickle
        client.delete("seen")
        with pytest.raises(FilterLostError):
            copy.add("a")
