"""Filters made with a URL: they connect on first use, and pickle with the URL."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

import bloomredis
import bloomredis.asyncio
from bloomredis import BloomFilter, ConnectionFailedError, ShardedBloomFilter, compat
from tests.support.inside import client_of
from tests.support.servers import Server
from tests.support.values import for_each

HALVES = [bloomredis, bloomredis.asyncio]
KINDS: dict[str, dict[str, Any]] = {
    "BloomFilter": {"layout": "classic"},
    "CountingBloomFilter": {},
    "RotatingBloomFilter": {"window": 60},
    "ScalingBloomFilter": {},
    "ShardedBloomFilter": {"shards": 4},
}
each_class = for_each(("half", "kind"), [(half, kind) for half in HALVES for kind in KINDS])


def make(half: Any, kind: str, url: Any, **options: Any) -> Any:
    parameters = {"capacity": 1000, "error_rate": 0.01} | KINDS[kind] | options
    return getattr(half, kind).from_url(url, "seen", **parameters)


def added(half: Any, *filters: Any) -> list[bool]:
    """Add one item to filters, and close them."""
    if half is bloomredis:
        answers = [f.add("a") for f in filters]
        for f in filters:
            f.close()
        return answers

    async def work() -> list[bool]:
        answers = [await f.add("a") for f in filters]
        for f in filters:
            await f.close()
        return answers

    return asyncio.run(work())


def pickled(f: Any) -> Any:
    return pickle.loads(pickle.dumps(f))  # noqa: S301 - its own bytes


@each_class
def test_every_class_takes_a_url_and_pickles_with_it(any_server: Server, half: Any, kind: str) -> None:
    """Pickled before or after it connected, a filter's copy uses the same stored filter."""
    f = make(half, kind, any_server.url)
    assert added(half, pickled(f), f) == [True, False]
    assert added(half, pickled(f), pickled(pickled(f))) == [False, False]


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("url", ["memory://", "embedded://", "embedded://{}"])
def test_servers_of_this_process_have_urls(half: Any, url: str, tmp_path: Path) -> None:
    """A filter in memory or on an embedded server shares its data with its copies."""
    f = make(half, "BloomFilter", url.format(tmp_path))
    other = pickled(f)
    assert added(half, f, other, pickled(f), copy.copy(f), copy.deepcopy(f)) == [True, *[False] * 4]


def _tell(filters: list[Any], told: Any) -> None:
    for f in filters:
        try:
            told.put(f.add("a"))
        except ConnectionFailedError as error:
            told.put(str(error))


def test_a_spawned_process_connects_by_itself(any_server: Server) -> None:
    """A filter can be its argument; one of a private server raises there, instead of using a new one."""
    filters = [make(bloomredis, "BloomFilter", url) for url in (any_server.url, "memory://", "embedded://")]
    assert filters[0].add("a")
    spawn = multiprocessing.get_context("spawn")
    told = spawn.Queue()
    child = spawn.Process(target=_tell, args=(filters, told))
    child.start()
    assert told.get(timeout=60) is False
    for _ in filters[1:]:
        assert "embedded:///some/directory" in told.get(timeout=60)
    child.join()


def test_threads_connect_once() -> None:
    """Threads that use a new filter at the same time share one client."""
    f = make(bloomredis, "BloomFilter", "memory://")
    clients: list[Any] = []
    threads = [threading.Thread(target=lambda: clients.append(client_of(f))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(client) for client in clients}) == 1


@each_class
@for_each(
    ("url", "error"),
    [
        ("http://user:secret@host", ValueError),
        ("host:6379", ValueError),
        ("redis://user:secret@host:port", ValueError),
        ("redis+cluster://:secret@host:port", ValueError),
        ("memory://secret", ValueError),
        ("embedded://secret", ValueError),
        (None, TypeError),
        (b"redis://secret@host", TypeError),
    ],
)
def test_a_bad_url_is_named_at_once(half: Any, kind: str, url: Any, error: type[Exception]) -> None:
    """The constructor refuses a bad URL without I/O, and without showing the password."""
    with pytest.raises(error) as caught:
        make(half, kind, url)
    assert "secret" not in str(caught.value).replace("embedded:///secret", "")


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("url", ["redis://localhost:1", "redis+cluster://localhost:1", "unix:///nowhere"])
def test_no_server_is_a_failed_connection(half: Any, url: str) -> None:
    """Making the filter does no I/O; its first call raises an error that no server answers."""
    f = make(half, "ShardedBloomFilter", url)
    with pytest.raises(ConnectionFailedError) as caught:
        added(half, f)
    assert caught.value.__cause__ is not None


def test_closing_leaves_a_given_client_alone(any_server: Server) -> None:
    """`close` closes only a client that the filter made; the filter then connects again."""
    with any_server.client() as client:
        f = BloomFilter(client, "given", capacity=10, error_rate=0.1)
        f.add("a")
        connection = client.client_id()
        f.close()
        assert client.client_id() == connection
    own = make(bloomredis, "BloomFilter", any_server.url)
    own.close()
    own.add("a")
    own.close()
    assert own.contains("a")


@for_each("half", HALVES)
def test_a_repr_shows_the_parameters(half: Any) -> None:
    """The repr of every class shows the parameters, without I/O and without the URL."""
    shown = {kind: repr(make(half, kind, "redis://:secret@localhost:1")) for kind in KINDS}
    rest = "'seen', capacity=1000, error_rate=0.01, layout="
    own = {
        "ScalingBloomFilter": ", expansion=2, tightening_ratio=0.5",
        "RotatingBloomFilter": ", window=60.0, slices=4",
    }
    classic = ("BloomFilter", "CountingBloomFilter")
    assert shown == {
        kind: f"{kind}({rest}'{'classic' if kind in classic else 'blocked'}'{own.get(kind, '')})"
        for kind in KINDS
    }


def test_a_repr_shows_what_was_found(any_server: Server) -> None:
    """The repr of an opened filter shows the stored parameters, or the layout's for another system."""
    with any_server.client() as client:
        for kind, options in KINDS.items():
            name, cls = f"r-{kind}", getattr(bloomredis, kind)
            cls(client, name, capacity=1000, error_rate=0.01, **options).add("a")
            assert repr(cls.open(client, name)).startswith(
                f"{kind}({name!r}, capacity=1000, error_rate=0.01,"
            )
        assert repr(BloomFilter(client, "x" * 1000)).startswith("BloomFilter('xxx")
        assert len(repr(ShardedBloomFilter(client, "x" * 1000))) < 150
        layout: Any = compat.go_zero(1000)
        assert "layout='go_zero'" in repr(BloomFilter(client, "g", layout=layout)).replace("-", "_")
