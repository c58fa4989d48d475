"""A sharded filter over a list of servers."""

from __future__ import annotations

import pickle
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from bloomredis import (
    BatchInterruptedError,
    BloomError,
    FilterLostError,
    FilterMismatchError,
    OutcomeUnknownError,
    ServerRefusedError,
    ShardedBloomFilter,
)
from bloomredis.protocol import scripts
from bloomredis.protocol.steps import Many
from bloomredis.stored.shards.record import ShardRecord
from bloomredis.stored.shards.shards import StoredShards
from tests.support.background import Child
from tests.support.servers import Server, binaries, running
from tests.support.sharding import ITEMS, OPTIONS, shard_keys
from tests.support.values import for_each


@pytest.fixture
def pair(server: Server) -> Iterator[list[Any]]:
    """Clients of two independent real servers."""
    with server.client() as first, running(binaries()["valkey-9"]) as other, other.client() as second:
        yield [first, second]


def test_a_filter_on_several_servers_pickles(pair: list[Any]) -> None:
    """The copy needs as many clients."""
    copy = pickle.loads(pickle.dumps(ShardedBloomFilter(pair, "seen", **OPTIONS)))  # noqa: S301 - our own
    with pytest.raises(RuntimeError, match="with_client"):
        copy.add("x")
    with pytest.raises(ValueError, match="2 servers, not on 1"):
        copy.with_client(pair[:1])
    assert copy.with_client(pair).add_many(ITEMS) == [True] * 400


def test_a_list_of_one_server_is_that_server(bloom: Any, client: redis.Redis) -> None:
    """A list of one server and that server alone can be used together."""
    assert all(bloom.sharded([client], "seen", **OPTIONS).add_many(ITEMS))
    assert not any(bloom.sharded(client, "seen", **OPTIONS).add_many(ITEMS))


class Down:
    """A client whose server is unreachable while `down` is set."""

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client
        self.down = False

    def execute_command(self, *command: Any, **options: Any) -> Any:
        if self.down:
            raise redis.ConnectionError("Connection refused.")
        return self._client.execute_command(*command, **options)

    def pipeline(self, *, transaction: bool) -> Any:
        if self.down:
            raise redis.ConnectionError("Connection refused.")
        return self._client.pipeline(transaction=transaction)


def test_a_batch_that_is_interrupted_again_and_again(any_server: Server) -> None:
    """An answer known from the first attempt is returned whenever its item gets an answer."""
    servers = [Down(any_server.client(db=db)) for db in range(3)]
    clients: list[Any] = servers
    f = ShardedBloomFilter(clients, "seen", **OPTIONS)
    f.add_many(ITEMS)
    spread: Any = f._operations
    fresh = {spread._place(item.encode())[0]: item for item in map(str, range(1000, 1100))}
    batch = [fresh[1], fresh[0], fresh[2]]
    told: list[bool] = []
    for down in ([1, 2], [2], []):
        for place, server in enumerate(servers):
            server.down = place in down
        try:
            told += f.add_many(batch[len(told) :])
        except BatchInterruptedError as error:
            told += error.results
    assert told == [True] * 3
    assert f.add_many(batch) == [False] * 3


def test_an_interrupted_batch_hands_out_a_claim_once(any_server: Server) -> None:
    """An item of the rest is busy if a claim so far has an equal item, else it is claimed."""
    up, down = servers = [Down(any_server.client(db=db)) for db in range(2)]
    clients: list[Any] = servers
    f = ShardedBloomFilter(clients, "seen", **OPTIONS)
    f.add_many(ITEMS)
    spread: Any = f._operations
    fresh = [str(i) for i in range(1000, 1100)]
    first, later = [each for each in fresh if clients[spread._place(each.encode())[0]] is up][:2]
    away = next(each for each in fresh if clients[spread._place(each.encode())[0]] is down)
    down.down = True
    with pytest.raises(BatchInterruptedError) as caught:
        f.claim_many([first, away, first, later])
    down.down = False
    assert [claim.state for claim in caught.value.results] == ["claimed"]
    assert caught.value.rest == [away, first, later]
    assert [claim.state for claim in f.claim_many(caught.value.rest)] == ["claimed", "busy", "claimed"]


@for_each(("capacity", "count"), [(10_000_000, 5000), (100_000, 200_000)])
def test_a_load_that_is_interrupted(any_server: Server, capacity: int, count: int) -> None:
    """A few items are kept for a retry; of many, sent as segments, the error says how many are in."""
    servers = [Down(any_server.client(db=db)) for db in range(2)]
    clients: list[Any] = servers
    f = ShardedBloomFilter(clients, f"load-{capacity}", capacity=capacity, error_rate=0.01)
    items = [f"{i}" for i in range(count)]
    f.reserve()
    servers[1].down = True
    with pytest.raises(BloomError) as caught:
        f.load(iter(items))
    servers[1].down = False
    if isinstance(caught.value, BatchInterruptedError):
        assert 0 < len(caught.value.rest) < count
        f.load(caught.value.rest)
    else:
        assert count == 200_000
        (known,) = re.findall(r"has added the first (\d+) items", str(caught.value))
        assert f.contains_many(items[: int(known)]) == [True] * int(known)
        f.load(items)
    assert all(f.contains_many(items))
    assert f.info().count == pytest.approx(count, rel=0.06)


class Failing(Down):
    """A client that raises an error in place of one of its commands."""

    error: BaseException | None = None
    at = 0

    def execute_command(self, *command: Any, **options: Any) -> Any:
        self.at -= 1
        if self.at == 0 and self.error is not None:
            raise self.error
        return super().execute_command(*command, **options)


def test_claims_of_a_server_that_stopped_before_an_interrupt(any_server: Server) -> None:
    """A retry also gets the claims that a server made before it stopped."""
    servers = [Failing(any_server.client(db=db)) for db in range(2)]
    clients: list[Any] = servers
    f = ShardedBloomFilter(clients, "seen", capacity=100_000, error_rate=1e-6, shards=2)
    items = [f"claim-{i}" for i in range(1600)]
    f.add_many(ITEMS)
    f.release_many(f.claim_many(items[:20]))
    for server, error, at in zip(
        servers, (redis.ConnectionError("gone"), KeyboardInterrupt()), (2, 3), strict=True
    ):
        server.error, server.at = error, at
    with pytest.raises(KeyboardInterrupt):
        f.claim_many(items, lease=3600)
    assert Counter(claim.state for claim in f.claim_many(items)) == {"claimed": 1600}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_asks_all_servers(any_server: Server) -> None:
    """The child makes its own threads, since the parent's do not exist in it."""
    with running(binaries()["valkey-9"]) as second:
        f = ShardedBloomFilter([any_server.client(), second.client()], "seen", **OPTIONS)
        assert all(f.add_many(ITEMS))
        assert Child(lambda: f.add_many([*ITEMS, "x", "y"])).result() == [False] * 400 + [True] * 2
        assert f.add_many(["x", "y", "z"]) == [False, False, True]


def test_servers_share_the_items(bloom: Any, pair: list[Any]) -> None:
    """Each server has some shards; all calls act on both."""
    f = bloom.sharded(pair, "seen", **OPTIONS)
    assert f.add_many([*ITEMS, ITEMS[0]]) == [True] * 400 + [False]
    assert [len(shard_keys(client)) for client in pair] == [8, 8]
    assert f.info().count == 400
    g = bloom.open(pair, "seen", "ShardedBloomFilter")
    assert g.contains_many([*ITEMS, "absent"]) == [True] * 400 + [False]
    assert f.load(range(3000)) == 3000
    assert all(f.claim_many(["x", "y"]))
    assert not any(g.claim_many(["x", "y"]))
    g.expire(100)
    assert all(client.pttl(key) > 0 for client in pair for key in ["seen", *shard_keys(client)])
    g.clear()
    assert not any(g.contains_many(ITEMS))
    assert g.delete()
    assert not any(client.exists("seen", *shard_keys(client)) for client in pair)
    with pytest.raises(TypeError, match="pipeline is on one"):
        f.queue_add(pair[0].pipeline(), "x")


def test_another_order_or_number_is_refused(bloom: Any, pair: list[Any]) -> None:
    """No item is touched."""
    bloom.sharded(pair, "seen", **OPTIONS).add("a")
    first, second = pair
    before = [sorted(client.keys()) for client in pair]
    for clients in ([second, first], [first], first, [second], [first, first], [first, second, first]):
        with pytest.raises(FilterMismatchError, match="server"):
            bloom.sharded(clients, "seen", **OPTIONS).add_many(ITEMS)
    assert [sorted(client.keys()) for client in pair] == before


@for_each("place", [0, 1])
def test_a_server_that_lost_everything_is_noticed(bloom: Any, pair: list[Any], place: int) -> None:
    """Whichever server it was, an object that never used the filter detects it; `reserve()` continues."""
    f = bloom.sharded(pair, f"seen-{place}", **OPTIONS)
    f.add_many(ITEMS)
    pair[place].flushall()
    g = bloom.sharded(pair, f"seen-{place}", **OPTIONS)
    for _ in range(2):
        with pytest.raises(FilterLostError, match=f"server {place}"):
            g.add_many(ITEMS)
    g.reserve()
    assert 100 < sum(g.add_many(ITEMS)) <= (300 if place else 400)
    assert not any(g.add_many(ITEMS))
    assert not any(bloom.sharded(pair, f"seen-{place}", **OPTIONS).add_many(ITEMS))


def dies(pair: list[Any], at: Callable[[int, Any], bool]) -> None:
    """Let the process that creates a filter die before it sends such a command to a server."""
    maker: Any = ShardedBloomFilter(pair, "seen", **OPTIONS)
    stored: Any = maker._operations.stored
    making = stored.open()
    step = next(making)
    while True:
        replies: list[Any] = []
        for call in step.calls if isinstance(step, Many) else [step]:
            (command,), place = call.commands, call.server[0]
            if at(place, command):
                making.close()
                return
            try:
                replies.append(pair[place].execute_command(*command))
            except redis.ResponseError as error:
                replies.append(error)
        if isinstance(step, Many):
            step = making.send(replies)
        else:
            step = making.throw(replies[0]) if isinstance(replies[0], Exception) else making.send(replies[0])


@for_each("place", [0, 1])
@for_each("verb", ["reserve", "settle_part", "settle_record"])
def test_a_maker_that_died_has_lost_nothing(pair: list[Any], verb: str, place: int) -> None:
    """Whoever opens the filter continues its creation, and a loss is detected from then on."""
    for client in pair:
        client.flushall()
    sha = scripts.load_script(verb).sha
    dies(pair, lambda at, command: sha in command and (at == place or verb == "settle_record"))
    assert ShardedBloomFilter(pair, "seen", **OPTIONS).add_many(ITEMS) == [True] * 400
    pair[0].flushall()
    with pytest.raises(FilterLostError, match="server 0"):
        ShardedBloomFilter(pair, "seen", **OPTIONS).reserve()


def test_nobody_adds_before_each_server_has_its_parts(pair: list[Any]) -> None:
    """A server that refuses to create or persist its parts holds up the others."""
    pair[1].config_set("min-replicas-to-write", 1)
    f = ShardedBloomFilter(pair, "seen", **OPTIONS)
    for _ in range(2):
        with pytest.raises(ServerRefusedError, match="NOREPLICAS"):
            f.add_many(ITEMS)
    pair[1].config_set("min-replicas-to-write", 0)
    assert f.add_many(ITEMS) == [True] * 400


@for_each("verb", ["clear", "delete", "expire"])
@for_each("place", [0, 1])
def test_a_call_that_is_refused_on_its_way(pair: list[Any], verb: str, place: int) -> None:
    """The error says whether anything was changed, and a retry succeeds."""
    f = ShardedBloomFilter(pair, f"{verb}-{place}", **OPTIONS)
    f.add_many(ITEMS)
    pair[place].config_set("min-replicas-to-write", 1)
    arguments = [100] if verb == "expire" else []
    with pytest.raises(ServerRefusedError) as caught:
        getattr(f, verb)(*arguments)
    pair[place].config_set("min-replicas-to-write", 0)
    has_begun = verb == "expire" or place == 1
    assert isinstance(caught.value, OutcomeUnknownError) is has_begun
    if not has_begun:
        assert all(f.contains_many(ITEMS))
    getattr(f, verb)(*arguments)
    if verb == "expire":
        assert all(client.ttl(key) > 0 for client in pair for key in client.keys(f"*{verb}-{place}*"))
    else:
        assert f.add_many(ITEMS) == [True] * 400


def test_a_delete_while_the_filter_is_made(pair: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The delete removes its parts, and the creator creates them again; no loss is reported."""
    maker, deleter = (ShardedBloomFilter(pair, "seen", **OPTIONS) for _ in range(2))
    original = StoredShards._is_stored
    deleted: list[bool] = []

    def is_stored(self: StoredShards, record: ShardRecord) -> Any:
        if not deleted:
            deleted.append(True)
            deleter.delete()
        return original(self, record)

    monkeypatch.setattr(StoredShards, "_is_stored", is_stored)
    assert maker.add_many(ITEMS) == [True] * 400
    assert deleted
    assert [client.exists("seen") for client in pair] == [1, 1]
    assert ShardedBloomFilter(pair, "seen", **OPTIONS).add_many(ITEMS) == [False] * 400


def test_a_server_that_dies_interrupts_and_loses_nothing(bloom: Any, any_server: Server) -> None:
    """The other server's answers are returned when the rest is retried."""
    with running(binaries()["valkey-9"], "--save", "", "--appendonly", "yes") as second:
        pair = [any_server.client(), second.client(retry=Retry(NoBackoff(), 0))]
        f = bloom.sharded(pair, "seen", **OPTIONS)
        assert all(f.add_many(ITEMS[:100]))
        second.stop()
        with pytest.raises(BatchInterruptedError) as caught:
            f.add_many(ITEMS)
        second.start()
        told = [*caught.value.results, *f.add_many(caught.value.rest)]
        assert told == [False] * 100 + [True] * 300
        assert f.add_many(ITEMS) == [False] * 400
        second.stop()
        with pytest.raises(BatchInterruptedError) as claimed:
            f.claim_many([f"c{i}" for i in range(50)])
        second.start()
        states = [claim.state for claim in (*claimed.value.results, *f.claim_many(claimed.value.rest))]
        assert states == ["claimed"] * 50


def test_commits_do_not_wait_for_another_server(any_server: Server) -> None:
    """Not even the first batch, whose first commit goes alone."""
    with running(binaries()["valkey-9"]) as second:
        pair = [any_server.client(), second.client(retry=Retry(NoBackoff(), 0))]
        f = ShardedBloomFilter(pair, "seen", **OPTIONS)
        claims = f.claim_many(ITEMS[:40], lease=3)
        servers = [f._operations.server_of(claim._state) for claim in claims]
        assert set(servers) == {0, 1}
        claims.sort(key=lambda claim: -f._operations.server_of(claim._state))
        second.stop()
        with pytest.raises(BatchInterruptedError):
            f.commit_many(claims)
        assert Counter(claim.state for claim in claims)["done"] == servers.count(0)


def test_a_shard_has_the_layout_of_its_own_record(pair: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the filter is replaced and another thread opens the new one, while the shard is opened."""
    name = "seen"
    shards: dict[str, Any] = {"shards": 4, "error_rate": 1e-6}
    ShardedBloomFilter(pair, name, capacity=10_000, **shards).reserve()
    f = ShardedBloomFilter.open(pair, name)
    f.reserve()
    own: Any = f._operations
    found = StoredShards.acquire

    def acquire(stored: StoredShards) -> Any:
        handle = yield from found(stored)
        if stored is own.stored and not replaced.is_set():
            replaced.set()
            ShardedBloomFilter.open(pair, name).delete()
            ShardedBloomFilter(pair, name, capacity=80_000, **shards).reserve()
            f.reserve()
        return handle

    replaced = threading.Event()
    monkeypatch.setattr(StoredShards, "acquire", acquire)
    items = [f"item-{i}" for i in range(200)]
    for item in items:
        f.add(item)
    assert replaced.is_set()
    assert all(ShardedBloomFilter.open(pair, name).contains_many(items))


def test_servers_are_asked_at_once(any_server: Server) -> None:
    """A batch takes as long as its slowest server, not as long as all together."""
    stopped = Counter[int]()

    class Slow:
        def __init__(self, place: int, client: redis.Redis) -> None:
            self.place, self.client = place, client

        def __getattr__(self, name: str) -> Any:
            return getattr(self.client, name)

        def pipeline(self, **options: Any) -> Any:
            stopped[self.place] += 1
            barrier.wait(20)
            return self.client.pipeline(**options)

    barrier = threading.Barrier(3)
    with ExitStack() as stack:
        databases = [stack.enter_context(any_server.client(db=db)) for db in range(3)]
        warm = ShardedBloomFilter(databases, "seen", **OPTIONS)
        warm.add_many(ITEMS)
        slow = warm.with_client([Slow(i, client) for i, client in enumerate(databases)])
        assert slow.add_many(ITEMS) == [False] * 400
    assert stopped == {0: 1, 1: 1, 2: 1}
