"""The whole public API works under exactly the documented ACL rule, over a unix socket and over TLS.

`whole_api` and its asyncio counterpart use every public name. A test fails if a name has no line in both.
"""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import (
    BloomError,
    BloomFilter,
    ConnectionFailedError,
    CountingBloomFilter,
    OutcomeUnknownError,
    RotatingBloomFilter,
    ScalingBloomFilter,
    ServerRefusedError,
    ShardedBloomFilter,
    Skipped,
    compat,
)
from bloomredis.stored.header import KINDS
from tests.conftest import BINARIES, REAL
from tests.support.modules import MODULE, needs_module
from tests.support.readme import acl_rule, layout_rule, module_rule, sharded_rule
from tests.support.servers import Server, running
from tests.support.tls import Certificate, with_tls
from tests.support.values import for_each

OPTIONS: Final[dict[str, Any]] = {"capacity": 1000, "error_rate": 1e-6}
SHORT: Final = {**OPTIONS, "min_replicas": 1, "replica_timeout": 0.01}  # no replica to wait for
LOADED: Final = range(500)  # enough items for load to send whole segments
HANDSHAKE: Final = {"auth", "hello", "select", "client|setinfo", "client|maint_notifications", "client"}
"""Commands that clients send by themselves; every user may use them, or clients work without."""


class Watched:
    """An object or a class that records which of its names were used."""

    def __init__(self, target: Any, used: set[str]) -> None:
        self.target = target
        self._used = used

    def __getattr__(self, name: str) -> Any:
        self._used.add(name)
        return getattr(self.target, name)


def public(*classes: type) -> set[str]:
    return {name for each in classes for name in dir(each) if not name.startswith("_")}


def whole_api(client: Any) -> set[str]:
    """Use every public name of a filter and its claims, with the filter `seen`; return the names used."""
    used: set[str] = set()
    f = Watched(BloomFilter(client, "seen", ttl=100, **OPTIONS), used)
    f.create()
    assert f.acknowledge() is False
    assert f.name == "seen"
    assert f.add("a")
    assert f.contains("a")
    assert f.add_many(["a", "b", "b"]) == [False, True, False]
    assert f.contains_many(["b", "x"]) == [True, False]
    assert list(f.dedupe(["b", "c"])) == ["c"]
    assert "c" in Watched(BloomFilter, used).open(client, "seen")
    assert f.with_client(client).contains("c")
    with client.pipeline(transaction=False) as pipe:
        f.queue_add(pipe, "d")
        f.queue_contains(pipe, "x")
        assert pipe.execute() == [1, 0]
    with pytest.raises(OutcomeUnknownError) as unknown:
        BloomFilter(client, "seen", **SHORT).add("e")
    assert f.add("e", token=unknown.value.token)
    claims = [
        Watched(claim, used) for claim in (f.claim("f", lease=9), *f.claim_many(["g", "g", "a"], lease=9))
    ]
    assert [claim.state for claim in claims] == ["claimed", "claimed", "claimed", "done"]
    claims[0].extend(20)
    claims[0].commit()
    claims[1].release()
    assert [f.contains(claim.item) for claim in claims[:2]] == [True, False]
    whole_claims(f, claims[0])
    f.expire(50)
    assert f.info().count == 6
    assert f.update(LOADED) == len(LOADED)
    assert all(f.snapshot().contains_many(LOADED))
    moved(f, used, client)
    f.clear()
    assert f.delete()
    other_kinds(client, used)
    classic = BloomFilter(client, "seen", layout="classic", **OPTIONS)
    assert classic.add("a")
    assert classic.contains("a")
    assert classic.delete()
    layout = compat.redis_template(1000, 0.01, insert_ttl=100)
    shared = Watched(BloomFilter(client, "seen", layout=layout), used)
    assert shared.add("a")
    assert shared.delete()
    counting = Watched(CountingBloomFilter(client, "seen", **OPTIONS), used)
    assert counting.add("a")
    assert counting.contains("a")
    assert counting.info().count == 1
    assert counting.remove("a")
    assert counting.delete()
    return used


def whole_claims(f: Any, claim: Any) -> None:
    """Use the remaining names of claims and columns."""
    assert (claim.is_own, claim.lost, claim.remaining) == (False, False, 0)
    assert claim.from_token(f.target, claim.token).state == "done"
    held = f.claim_many(["r"], lease=9, owner="rank 1")
    assert f.extend_many(held, 20) == ["claimed"]
    assert f.release_many(held) == ["released"]
    assert f.commit_many(f.claim_many(["f", "f"])) == ["done", "done"]
    assert f.once(None)(len)("f") == Skipped("f", "done", 0)
    assert f.add_mask(["a"]).tolist() == [False]
    assert f.contains_mask(["a"]).tolist() == [True]


async def whole_claims_asyncio(f: Any, claim: Any) -> None:
    """Do the same with the asyncio classes."""
    assert (claim.is_own, claim.lost, claim.remaining) == (False, False, 0)
    assert claim.from_token(f.target, claim.token).state == "done"
    held = await f.claim_many(["r"], lease=9, owner="rank 1")
    assert await f.extend_many(held, 20) == ["claimed"]
    assert await f.release_many(held) == ["released"]
    assert await f.commit_many(await f.claim_many(["f", "f"])) == ["done", "done"]

    @f.once(None)  # type: ignore[untyped-decorator]  # f may be any filter
    async def work(item: str) -> str:
        return item

    assert await work("f") == Skipped("f", "done", 0)
    assert (await f.add_mask(["a"])).tolist() == [False]
    assert (await f.contains_mask(["a"])).tolist() == [True]


async def whole_api_asyncio(client: Any) -> set[str]:
    """Do the same with the asyncio classes."""
    used: set[str] = set()
    f = Watched(bloomredis.asyncio.BloomFilter(client, "seen", ttl=100, **OPTIONS), used)
    await f.create()
    assert await f.acknowledge() is False
    assert f.name == "seen"
    assert await f.add("a")
    assert await f.contains("a")
    assert await f.add_many(["a", "b", "b"]) == [False, True, False]
    assert await f.contains_many(["b", "x"]) == [True, False]
    assert [item async for item in f.dedupe(["b", "c"])] == ["c"]
    assert await (await Watched(bloomredis.asyncio.BloomFilter, used).open(client, "seen")).contains("c")
    assert await f.with_client(client).contains("c")
    async with client.pipeline(transaction=False) as pipe:
        await f.queue_add(pipe, "d")
        await f.queue_contains(pipe, "x")
        assert await pipe.execute() == [1, 0]
    with pytest.raises(OutcomeUnknownError) as unknown:
        await bloomredis.asyncio.BloomFilter(client, "seen", **SHORT).add("e")
    assert await f.add("e", token=unknown.value.token)
    claims = [
        Watched(claim, used)
        for claim in (await f.claim("f", lease=9), *await f.claim_many(["g", "g", "a"], lease=9))
    ]
    assert [claim.state for claim in claims] == ["claimed", "claimed", "claimed", "done"]
    await claims[0].extend(20)
    await claims[0].commit()
    await claims[1].release()
    assert [await f.contains(claim.item) for claim in claims[:2]] == [True, False]
    await whole_claims_asyncio(f, claims[0])
    await f.expire(50)
    assert (await f.info()).count == 6
    assert await f.update(LOADED) == len(LOADED)
    assert all((await f.snapshot()).contains_many(LOADED))
    await moved_asyncio(f, used, client)
    await f.clear()
    assert await f.delete()
    await other_kinds_asyncio(client, used)
    classic = bloomredis.asyncio.BloomFilter(client, "seen", layout="classic", **OPTIONS)
    assert await classic.add("a")
    assert await classic.contains("a")
    assert await classic.delete()
    layout = compat.redis_template(1000, 0.01, insert_ttl=100)
    shared = bloomredis.asyncio.BloomFilter(client, "seen", layout=layout)
    assert await Watched(shared, used).add("a")
    assert await Watched(shared, used).delete()
    counting = Watched(bloomredis.asyncio.CountingBloomFilter(client, "seen", **OPTIONS), used)
    assert await counting.add("a")
    assert await counting.contains("a")
    assert (await counting.info()).count == 1
    assert await counting.remove("a")
    assert await counting.delete()
    return used


def moved(f: Any, used: set[str], client: Any) -> None:
    """Save the filter, copy it to another name in its slot, restore it, and merge it."""
    file = io.BytesIO()
    f.save(file)
    file.seek(0)
    restored = Watched(Watched(BloomFilter, used).restore(client, "{seen}:restored", file), used)
    restored.merge(f.copy(client, "{seen}:copied"))
    assert all(restored.contains_many(LOADED))
    adopted = Watched(ScalingBloomFilter, used).adopt(client, "{seen}:copied")
    assert all(adopted.contains_many(LOADED))
    assert restored.delete()
    assert adopted.delete()


async def moved_asyncio(f: Any, used: set[str], client: Any) -> None:
    """Do the same with the asyncio classes."""
    file = io.BytesIO()
    await f.save(file)
    file.seek(0)
    restoring = Watched(bloomredis.asyncio.BloomFilter, used).restore(client, "{seen}:restored", file)
    restored = Watched(await restoring, used)
    await restored.merge(await f.copy(client, "{seen}:copied"))
    assert all(await restored.contains_many(LOADED))
    adopted = await Watched(bloomredis.asyncio.ScalingBloomFilter, used).adopt(client, "{seen}:copied")
    assert all(await adopted.contains_many(LOADED))
    assert await restored.delete()
    assert await adopted.delete()


def other_kinds(client: Any, used: set[str]) -> None:
    """Use the methods that only the other classes have."""
    sharded = Watched(ShardedBloomFilter, used).open
    f = Watched(ShardedBloomFilter(client, "seen", **OPTIONS), used)
    assert list(f.dedupe(["a", "b", "a"])) == ["a", "b"]
    with f.claim("c", lease=9) as claim:
        assert claim
    f.expire(50)
    assert f.update(LOADED) == len(LOADED)
    assert all(sharded(client, "seen").contains_many(["a", *LOADED]))
    with client.pipeline(transaction=False) as pipe:
        f.queue_add(pipe, "d")
        assert pipe.execute() == [1]
    assert f.info().count == 504
    f.clear()
    assert f.delete()
    grown = Watched(ScalingBloomFilter(client, "seen", capacity=100, error_rate=1e-6), used)
    assert sum(grown.add_many(LOADED)) == len(LOADED)
    grown.expire(50)
    assert len(grown.info().layers) == 3
    grown.clear()
    assert grown.delete()
    recent = Watched(RotatingBloomFilter(client, "seen", window=60, **OPTIONS), used)
    assert recent.add_many(["a", "a"]) == [True, False]
    assert recent.delete()


async def other_kinds_asyncio(client: Any, used: set[str]) -> None:
    """Do the same with the asyncio classes."""
    sharded = Watched(bloomredis.asyncio.ShardedBloomFilter, used).open
    f = Watched(bloomredis.asyncio.ShardedBloomFilter(client, "seen", **OPTIONS), used)
    assert [item async for item in f.dedupe(["a", "b", "a"])] == ["a", "b"]
    async with f.claim("c", lease=9) as claim:
        assert claim
    await f.expire(50)
    assert await f.update(LOADED) == len(LOADED)
    assert all(await (await sharded(client, "seen")).contains_many(["a", *LOADED]))
    async with client.pipeline(transaction=False) as pipe:
        await f.queue_add(pipe, "d")
        assert await pipe.execute() == [1]
    assert (await f.info()).count == 504
    await f.clear()
    assert await f.delete()
    grown = Watched(
        bloomredis.asyncio.ScalingBloomFilter(client, "seen", capacity=100, error_rate=1e-6), used
    )
    assert sum(await grown.add_many(LOADED)) == len(LOADED)
    await grown.expire(50)
    assert len((await grown.info()).layers) == 3
    await grown.clear()
    assert await grown.delete()
    recent = Watched(bloomredis.asyncio.RotatingBloomFilter(client, "seen", window=60, **OPTIONS), used)
    assert await recent.add_many(["a", "a"]) == [True, False]
    assert await recent.delete()


def run_sync(url: str) -> set[str]:
    with redis.Redis.from_url(url) as client:
        used = whole_api(client)
    f = Watched(Watched(BloomFilter, used).from_url(url, "seen", **OPTIONS), used)
    assert f.add_many(["a", "b", "a"]) == [True, True, False]
    f.delete()
    f.close()
    return used


def run_asyncio(url: str) -> set[str]:
    async def main() -> set[str]:
        async with redis.asyncio.Redis.from_url(url) as client:
            used = await whole_api_asyncio(client)
        f = Watched(Watched(bloomredis.asyncio.BloomFilter, used).from_url(url, "seen", **OPTIONS), used)
        assert await f.add_many(["a", "b", "a"]) == [True, True, False]
        await f.delete()
        await f.close()
        await f.aclose()
        return used

    return asyncio.run(main())


RUNS: Final = {
    "sync": (run_sync, public(*(getattr(bloomredis, kind) for kind in KINDS), bloomredis.Claim)),
    "asyncio": (
        run_asyncio,
        public(*(getattr(bloomredis.asyncio, kind) for kind in KINDS), bloomredis.asyncio.Claim),
    ),
}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A certificate for 127.0.0.1, and the authority that issued it."""
    return Certificate.made_in(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=[f"{name} {way}" for name in REAL for way in ("unix", "tls")], scope="module")
def place(request: pytest.FixtureRequest, certificate: Certificate) -> Iterator[tuple[Server, str]]:
    """Each real server, over its socket and over TLS, with a user under the rule; and that user's URL."""
    name, way = request.param.split()
    with running(BINARIES[name]) if way == "unix" else with_tls(BINARIES[name], certificate) as found:
        server, port = (found, None) if isinstance(found, Server) else found
        with server.client() as admin:
            rule = [*acl_rule(), sharded_rule()]
            admin.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">secret", *rule)
        host = f"rediss://worker:secret@127.0.0.1:{port}?ssl_ca_certs={certificate.authority}"
        yield server, host if port else server.url.replace("unix://", "unix://worker:secret@")


@pytest.mark.parametrize(("run", "names"), RUNS.values(), ids=RUNS)
def test_the_documented_acl_rule_suffices(place: tuple[Server, str], run: Any, names: set[str]) -> None:
    """Every public name works for a user with exactly these rights, who is refused another filter."""
    _, url = place
    assert run(url) == names
    with redis.Redis.from_url(url) as client, pytest.raises(ServerRefusedError):
        BloomFilter(client, "another", capacity=10, error_rate=0.1).add("a")


@for_each(("run", "names"), RUNS.values())
def test_nothing_but_the_rule_is_called(server: Server, run: Any, names: set[str]) -> None:
    """The server counts every command of the rule and no other: no KEYS, SCAN, FLUSH or CONFIG SET."""
    with server.client() as admin:
        admin.config_resetstat()
        run(server.url)
        called = {name.removeprefix("cmdstat_") for name in admin.info("commandstats")}
    called -= {"config|resetstat", "config", "info"}  # sent by this test itself
    assert called - HANDSHAKE == {rule[1:] for rule in acl_rule() if rule.startswith("+")}
    assert not any(re.match("keys|s?scan|flush|config", name) for name in called)


def use_module(client: redis.Redis) -> None:
    """Use every method of a filter with the server's module."""
    f = BloomFilter(client, "seen", ttl=100, **MODULE)
    assert f.add("a")
    assert f.add_many(["a", "b", "c"]) == [False, True, True]
    assert f.contains("b")
    assert f.update(LOADED) == len(LOADED)
    with client.pipeline(transaction=False) as pipe:
        f.queue_add(pipe, "d")
        f.queue_contains(pipe, "d")
        assert pipe.execute() == [1, 1]
    with pytest.raises(OutcomeUnknownError):
        BloomFilter(client, "seen", min_replicas=1, replica_timeout=0.01, **MODULE).add("e")
    claims = f.claim_many(["f", "g"], lease=9)
    claims[0].extend(20)
    claims[0].commit()
    claims[1].release()
    f.expire(50)
    assert BloomFilter.open(client, "seen").info().count >= f.info().count
    f.clear()
    assert f.delete()


def test_the_rule_of_the_module_layout_suffices(server: Server) -> None:
    """The module layout's rule suffices for a user's own filter, which uses exactly the rule's commands."""
    with server.client() as admin:
        needs_module(admin)
        rule = [*acl_rule(), *module_rule()]
        execute: Any = admin.execute_command
        execute("ACL", "SETUSER", "worker", "reset", "on", ">secret", *rule)
        admin.config_resetstat()
        with redis.Redis.from_url(server.url.replace("unix://", "unix://worker:secret@")) as client:
            use_module(client)
            execute("BF.RESERVE", "seen", 0.01, 100)
            assert BloomFilter.open(client, "seen").add("a")
        called = {name.removeprefix("cmdstat_").lower() for name in admin.info("commandstats")}
        allowed = {each[1:] for each in rule if each.startswith("+")}
        assert {each[1:] for each in module_rule()} <= called
        assert {name for name in called if name.startswith("bf.")} - {"bf.reserve"} <= allowed


REVISED: Final = "`php_bkdr` or `php_bkdr_shards` with `revised=True`"
LAYOUTS: Final[dict[str, list[tuple[str, Any]]]] = {
    "of growing bitmaps (`redis_bitmaps`)": [("seen", compat.redis_bitmaps(30, 0.001))],
    "`jedis`": [("seen", compat.jedis(1000, 0.01))],
    REVISED: [
        ("seen", compat.php_bkdr(10_000, 5, revised=True)),
        *(each[1:] for each in compat.php_bkdr_shards("seen", 10_000, 5, [None], revised=True)),
    ],
    "`php_bkdr_shards` without `revised=True`": [
        each[1:] for each in compat.php_bkdr_shards("seen", 10_000, 5, [None], partitions=2)
    ],
}
"""Names and layouts of filters, by the text of their row."""


@for_each("layout", LAYOUTS)
def test_the_rights_of_other_layouts(server: Server, layout: str) -> None:
    """A bitmap of another system works with the further key patterns, and is refused without them."""
    with server.client() as admin:
        for more in ([], layout_rule(layout)):
            rule = [*acl_rule(), *more]
            admin.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">secret", *rule)
            url = server.url.replace("unix://", "unix://worker:secret@")
            with redis.Redis.from_url(url) as client:
                for name, own in LAYOUTS[layout]:
                    f = BloomFilter(client, name, layout=own)
                    if not more:
                        with pytest.raises(BloomError, match="NOPERM"):
                            f.add_many(range(100))
                        continue
                    assert any(f.add_many(range(100)))
                    assert f.contains(1)
                    f.claim("b", lease=60).commit()
                    assert f.contains("b")
                    assert f.delete()


@pytest.mark.parametrize("place", [f"{name} tls" for name in REAL], indirect=True)
def test_tls_is_verified(place: tuple[Server, str]) -> None:
    """Without the certificate's authority, or for another host name, no connection is made."""
    _, url = place
    names = [url.replace("127.0.0.1", "localhost")] if redis.VERSION >= (6,) else []  # 5 compares no names
    for other in (url.partition("?")[0], *names):
        client = redis.Redis.from_url(other, retry=None)
        with client, pytest.raises(ConnectionFailedError, match="certificate"):
            BloomFilter(client, "seen", **OPTIONS).add("a")


def test_a_wrong_password_is_refused(place: tuple[Server, str]) -> None:
    """Every way to connect refuses a wrong password; the error says what to do and hides the password."""
    _, url = place
    client = redis.Redis.from_url(url.replace(":secret@", ":hunter2@"), retry=None)
    with client, pytest.raises(ServerRefusedError, match="password") as caught:
        BloomFilter(client, "seen", **OPTIONS).add("a")
    assert caught.value.word == "NOAUTH"
    assert "hunter2" not in str(caught.value)
