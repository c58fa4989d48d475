"""Invalid clients, and servers without scripts: the error says what to do."""

from __future__ import annotations

import asyncio
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, MagicMock, Mock

import pytest
import redis
import redis.asyncio
from redis.sentinel import Sentinel

import bloomredis
import bloomredis.asyncio
from bloomredis import BloomError, BloomFilter, FilterNotFoundError, ServerRefusedError
from tests.support.servers import Server
from tests.support.values import for_each
from tests.support.waiting import wait_until


class Half:
    """An object that executes commands but has no pipelines."""

    def execute_command(self, *_: object) -> None: ...


class Own(Sentinel):
    """A program's own Sentinel."""


SENTINEL = Own([("h", 1)])  # type: ignore[no-untyped-call]  # redis-py is untyped here


@for_each(
    ("client", "words"),
    [
        (SENTINEL, r"sentinel\.master_for\('mymaster'\)"),
        (redis.ConnectionPool(), r"redis\.Redis\(connection_pool=pool\)"),
        (Half(), "client of redis-py or valkey-py"),
        ("redis://h", r"BloomFilter\.from_url\(url, name\)"),
    ],
)
def test_no_client(client: Any, words: str) -> None:
    """An invalid client is refused before anything is sent."""
    with pytest.raises(TypeError, match=words):
        BloomFilter(client, "seen", capacity=10, error_rate=0.1)


@for_each(
    ("module", "client"),
    [
        *((bloomredis, client) for client in (MagicMock(), Mock(), MagicMock(spec=redis.Redis))),
        *((bloomredis.asyncio, client) for client in (AsyncMock(), MagicMock(spec=redis.asyncio.Redis))),
    ],
)
def test_a_mock_is_a_client(module: Any, client: Any) -> None:
    """A program whose tests patch `redis.Redis` can make its filters."""
    for kind in ("BloomFilter", "RotatingBloomFilter"):
        options: dict[str, Any] = {"window": 60} if kind == "RotatingBloomFilter" else {}
        seen = getattr(module, kind)(client, "seen", capacity=10, error_rate=0.1, **options)
        assert seen.name == "seen"


def test_numbers_are_keywords(any_client: redis.Redis) -> None:
    """The error names the keywords."""
    with pytest.raises(TypeError, match=r"BloomFilter\(\): .* capacity=1000, error_rate=0\.01"):
        BloomFilter(any_client, "seen", 1000, 0.01)  # type: ignore[call-arg, arg-type]  # tested on purpose


def test_a_decorator_without_brackets(any_client: redis.Redis) -> None:
    """The error shows the correct spelling."""
    seen = BloomFilter(any_client, "seen", capacity=10, error_rate=0.1)
    with pytest.raises(TypeError, match=r"@seen\.once\(\"ship\"\)"):
        seen.once(print)  # type: ignore[call-overload]  # tested on purpose


def test_open_takes_no_capacity(any_client: redis.Redis) -> None:
    """The error says which call takes them."""
    with pytest.raises(FilterNotFoundError, match=r"error_rate= to ScalingBloomFilter\(\) to create it"):
        bloomredis.ScalingBloomFilter.open(any_client, "missing")


class Scriptless(redis.Redis):
    """A server without Lua, like fakeredis without its extra."""

    def execute_command(self, *_: Any, **__: Any) -> Any:
        raise redis.ResponseError("unknown command 'evalsha', with args beginning with: ")


def test_a_server_without_scripts() -> None:
    """The error is one of this library's, and says what to use in tests."""
    with pytest.raises(ServerRefusedError, match=r"pip install 'fakeredis\[lua\]'.*master_for"):
        BloomFilter(Scriptless(), "seen", capacity=10, error_rate=0.1).add("x")


def test_an_unpickled_filter_without_a_client(any_client: redis.Redis) -> None:
    """The error is one of this library's."""
    seen = pickle.loads(  # noqa: S301 - its own pickle
        pickle.dumps(BloomFilter(any_client, "seen", capacity=10, error_rate=0.1))
    )
    with pytest.raises(BloomError, match="with_client"):
        seen.add("x")


def test_a_filter_is_a_context_manager(any_server: Server) -> None:
    """`with` closes the connections that `from_url` opened, but not those of a given client."""
    with any_server.client() as client:
        before = len(client.client_list())
        with BloomFilter.from_url(any_server.url, "seen", capacity=10, error_rate=0.1) as seen:
            assert seen.add("x")
            assert len(client.client_list()) == before + 1
        wait_until("it is closed", lambda: len(client.client_list()) == before)
        with BloomFilter(client, "seen", capacity=10, error_rate=0.1) as seen:
            assert not seen.add("x")
        assert client.ping()


def test_names_that_people_see(any_client: redis.Redis) -> None:
    """`dir()` has no underscored names but Python's own; `repr` has only the class's own parameters."""
    seen = bloomredis.RotatingBloomFilter(any_client, "seen", capacity=10, error_rate=0.1, window=60)
    assert [name for name in dir(seen) if name.startswith("_") and not name.startswith("__")] == []
    assert "add" in dir(seen)
    assert "window=60.0, slices=4" in repr(seen)
    seen.create()
    about = seen.info()
    assert (about.window, about.slices, about.shards) == (60.0, 4, None)


def test_one_item_in_the_place_of_many(any_client: redis.Redis) -> None:
    """A number in place of the items gets the same error as a text."""
    seen = BloomFilter(any_client, "seen", capacity=10, error_rate=0.1)
    for item in (5, "x", b"x", Path("lines.txt")):
        for call in ("add_many", "contains_many", "update", "claim_many", "dedupe"):
            with pytest.raises(TypeError, match="items must be an iterable of items, not one"):
                list(getattr(seen, call)(item))
    with pytest.raises(TypeError, match=r"for the lines of a file, open it and give \(line\.rstrip\(\)"):
        list(seen.dedupe(Path("lines.txt")))  # type: ignore[arg-type]  # tested on purpose


@for_each("half", [bloomredis, bloomredis.asyncio])
@for_each("kind", ["BloomFilter", "ScalingBloomFilter", "RotatingBloomFilter", "ShardedBloomFilter"])
def test_a_class_without_remove(half: Any, kind: str) -> None:
    """The error names the class that has it."""
    client = redis.Redis() if half is bloomredis else redis.asyncio.Redis()
    seen = getattr(half, kind)(client, "seen")
    assert not hasattr(seen, "remove")
    with pytest.raises(AttributeError, match=f"a {kind} has no remove.*CountingBloomFilter"):
        seen.remove("x")
    with pytest.raises(AttributeError, match=f"'{kind}' object has no attribute 'removed'"):
        seen.removed("x")


WRONG_CALLS: dict[str, Callable[[Any], object]] = {
    "__init__": lambda seen: BloomFilter(seen.with_client, "seen", capacity=0),
    "add": lambda seen: seen.add(None),
    "contains": lambda seen: seen.contains(1.5),
    "add_many": lambda seen: seen.add_many(["a", None]),
    "contains_many": lambda seen: seen.contains_many([None]),
    "update": lambda seen: seen.update(["a", None]),
    "claim": lambda seen: seen.claim("x", lease=-1),
    "claim_many": lambda seen: seen.claim_many(["a", None]),
    "dedupe": lambda seen: list(seen.dedupe(["a", None])),
    "restore": lambda seen: seen.restore(redis.Redis(), "other", "."),
}


@for_each("verb,call", WRONG_CALLS.items())
def test_the_traceback_of_a_wrong_call(
    any_client: redis.Redis, verb: str, call: Callable[[Any], object]
) -> None:
    """It goes from the program straight to the public method, and ends in a built-in error."""
    seen = BloomFilter(any_client, "seen", capacity=10, error_rate=0.1)
    with pytest.raises((TypeError, ValueError)) as caught:
        call(seen)
    own, first = traceback.extract_tb(caught.value.__traceback__)[1:3]
    assert (own.name, first.name) == ("<lambda>", verb)
    assert caught.type in (TypeError, ValueError)
    assert caught.value.__cause__ or caught.value.__suppress_context__ or caught.value.__context__ is None


@for_each("verb", ["add", "contains", "add_many", "contains_many", "update", "claim", "claim_many"])
def test_the_traceback_of_a_wrong_call_in_asyncio(any_server: Server, verb: str) -> None:
    """It goes from the task straight to the public method, too."""
    wrong = None if verb in ("add", "contains", "claim") else ["a", None]

    async def task() -> None:
        async with bloomredis.asyncio.BloomFilter.from_url(
            any_server.url, "seen", capacity=10, error_rate=0.1
        ) as seen:
            await getattr(seen, verb)(wrong)

    with pytest.raises(TypeError) as caught:
        asyncio.run(task())
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[names.index("task") + 1] == verb


@for_each("kind", ["BloomFilter", "ShardedBloomFilter"])
def test_a_directory_is_no_file(any_client: redis.Redis, kind: str, tmp_path: Path) -> None:
    """Neither to be saved to nor to be restored from; the error names it."""
    seen = getattr(bloomredis, kind)(any_client, "seen", capacity=10, error_rate=0.1)
    seen.add("x")
    says = f"file must be a file, and '{tmp_path}' is a directory"
    with pytest.raises(ValueError, match=says):
        seen.save(tmp_path)
    with pytest.raises(ValueError, match=says):
        seen.restore(any_client, "other", str(tmp_path))
    with pytest.raises(ValueError, match="is a directory"):
        bloomredis.LocalFilter.open(tmp_path)
