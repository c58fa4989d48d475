"""One object for many keys: `at`."""

from __future__ import annotations

import pickle
from typing import Any, NoReturn

import pytest
import redis

import bloomredis.asyncio
from bloomredis import BloomFilter, FilterMismatchError, OutcomeUnknownError, compat
from bloomredis.drivers import others
from tests.support.counting_calls import counted_calls
from tests.support.losing import LosingClient
from tests.support.servers import Server
from tests.support.systems import InPipeline
from tests.support.values import for_each

LAYOUT = compat.jedis(10_000, 0.001)
RENEWED = compat.jedis(10_000, 0.001, insert_ttl=100)


def test_each_insert_goes_to_its_key_and_renews_its_ttl(bloom: Any, client: redis.Redis) -> None:
    """`at` inserts like the system's `insert(key, element, expireSec)`, and the system reads the result."""
    f = bloom(client, "seen", layout=LAYOUT)
    for name, ttl in (("monday", 100), ("tuesday", 200)):
        assert f.at(name, ttl=ttl).add("a")
        assert 1000 * (ttl - 1) < client.pttl(f"bf:{name}") <= 1000 * ttl
        assert InPipeline(f"bf:{name}").has(client, LAYOUT.offsets("a"))
    assert not f.at("tuesday", ttl=300).add("a")
    assert client.pttl("bf:tuesday") > 299_000
    assert f.at("monday").contains("a")
    assert f.at("wednesday").contains_many(["a"]) == [False]
    assert f.at("wednesday").add_many(["a", "b", "a"]) == [True, True, False]
    assert client.pttl("bf:wednesday") == -1
    assert not client.exists("bf:seen")


def test_without_a_ttl_it_is_that_of_the_filter(bloom: Any, client: redis.Redis) -> None:
    """Without a ttl `at` uses that of the filter, and renews it if the filter does."""
    bloom(client, "seen", layout=LAYOUT, ttl=100).at("fixed").add("a")
    bloom(client, "seen", layout=RENEWED).at("renewed").add("a")
    for key in ("bf:fixed", "bf:renewed"):
        assert client.pttl(key) > 99_000
        client.pexpire(key, 50_000)
    bloom(client, "seen", layout=LAYOUT, ttl=100).at("fixed").add("b")
    bloom(client, "seen", layout=RENEWED).at("renewed").add("a")
    assert client.pttl("bf:fixed") <= 50_000
    assert client.pttl("bf:renewed") > 99_000


class Silent:
    """A client that fails when it is used."""

    def execute_command(self, *command: Any, **_: Any) -> NoReturn:
        raise AssertionError(command)

    pipeline = execute_command


class SilentAsyncio(Silent):
    """The same for asyncio."""

    async def execute_command(self, *command: Any, **_: Any) -> NoReturn:  # type: ignore[override]  # as clients
        raise AssertionError(command)


@for_each(("kind", "silent"), [(BloomFilter, Silent()), (bloomredis.asyncio.BloomFilter, SilentAsyncio())])
@for_each("layout", [LAYOUT, compat.redis_template(10_000, 0.001), compat.go_zero(1000)])
def test_making_one_sends_nothing_and_is_cheap(kind: Any, silent: Any, layout: Any) -> None:
    """Making an object takes some dozens of function calls, whatever the filter's size; repeating it few."""
    f = kind(silent, "seen", layout=layout)
    many = 300
    with counted_calls() as calls:
        made = [f.at(f"key-{i}", ttl=10) for i in range(many)]
    assert calls.total() < 100 * many, calls.most_common(5)
    with counted_calls() as calls:
        assert f.at("key-299", ttl=10) is made[-1]
    assert calls.total() < 20
    assert [each.name for each in made] == [f"key-{i}" for i in range(many)]
    assert f.at("key-299", ttl=10) is made[-1] is made[0].at("key-299", ttl=10)
    assert f.at("key-299", ttl=11) is not made[-1]


def test_the_first_use_is_one_call(server: Server) -> None:
    """The first use is one call, without a look at the key before."""
    with server.client() as plain:
        client: Any = LosingClient(plain)
        f = BloomFilter(client, "seen", layout=LAYOUT)
        f.at("first").add("a")
        client.sent.clear()
        f.at("second", ttl=10).add("a")
        assert [command[0] for command in client.sent] == ["EVALSHA"]
        plain.rpush("bf:third", "x")
        with pytest.raises(FilterMismatchError):
            f.at("third").add("a")
        with pytest.raises(FilterMismatchError):
            f.at("third").reserve()


def test_a_lost_reply_is_known_to_who_asks_again(server: Server) -> None:
    """A retry gets the answer of a lost reply, however many other items were asked for in between."""
    with server.client() as plain:
        client: Any = LosingClient(plain)
        f = BloomFilter(client, "seen", layout=LAYOUT)
        f.at("first").add("a")
        client.lose = ["lost"]
        with pytest.raises(OutcomeUnknownError):
            f.at("second", ttl=10).add("a")
        for i in range(3 * others.MOST):
            f.at(f"key-{i}")
        assert f.at("second", ttl=10).add("a")
        assert not f.at("second", ttl=10).add("a")


def test_it_pickles_and_takes_another_client(client: redis.Redis) -> None:
    """It can be pickled and given another client, like any filter."""
    f = BloomFilter(client, "seen", layout=LAYOUT)
    f.at("monday").add("a")
    copied = pickle.loads(pickle.dumps(f.at("monday"))).with_client(client)  # noqa: S301 - its own pickle
    assert copied.contains("a")
    assert copied.at("tuesday").add("a")
    assert f.with_client(client).at("tuesday").contains("a")


def test_layouts_of_several_keys(bloom: Any, client: redis.Redis) -> None:
    """Each name has its own config with Redisson."""
    redisson = bloom(client, "seen", layout=compat.redisson(3000, 0.03))
    assert redisson.at("monday").add("a")
    assert client.hget("{monday}:config", "size") == b"21895"
    with pytest.raises(ValueError, match="takes no ttl"):
        redisson.at("monday", ttl=10)


@for_each(
    ("options", "message"),
    [
        ({"capacity": 10, "error_rate": 0.1}, "layouts from bloomredis.compat"),
        ({"layout": compat.redis_bitmaps(10, 0.1)}, "one chain only"),
    ],
)
def test_what_has_no_other_names(options: Any, message: str) -> None:
    """The error says why the filter has no other names."""
    with pytest.raises(TypeError, match=message):
        BloomFilter(redis.Redis(), "seen", **options).at("monday")


def test_a_name_is_not_empty() -> None:
    """An empty name is refused, as for any filter."""
    with pytest.raises(ValueError, match="must not be empty"):
        BloomFilter(redis.Redis(), "seen", layout=LAYOUT).at("")


@for_each("ttl", [0, -1, True, "x"])
def test_a_ttl_is_positive(ttl: Any) -> None:
    """A ttl of 0 or less is refused; where the system deletes the key for it, the call here is `delete()`."""
    with pytest.raises((ValueError, TypeError), match="ttl"):
        BloomFilter(redis.Redis(), "seen", layout=LAYOUT).at("monday", ttl=ttl)
