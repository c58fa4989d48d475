"""A user's program over synchronous clients: every class, every method, every parameter."""

import logging
import pickle
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import assert_type
from uuid import UUID

import numpy as np
import redis
from numpy.typing import NDArray
from redis.client import Pipeline
from redis.cluster import ClusterPipeline

from bloomredis import (
    BatchInterruptedError,
    BloomError,
    BloomFilter,
    CallEvent,
    Claim,
    ClaimLostError,
    ClaimUncheckedError,
    ConnectionFailedError,
    CountingBloomFilter,
    FilterExistsError,
    FilterFullError,
    FilterInfo,
    FilterLostError,
    FilterMismatchError,
    FilterNotFoundError,
    FilterPlan,
    LocalFilter,
    OutcomeUnknownError,
    RotatingBloomFilter,
    ScalingBloomFilter,
    ServerRefusedError,
    ShardedBloomFilter,
    Skipped,
    WorkItem,
    connect,
    instrument,
    keyed,
    plan,
)
from bloomredis.testing import bloom_client, later, lose, unreachable

log = logging.getLogger(__name__)
assert_type(connect("redis://localhost", socket_timeout=5), redis.Redis)


@dataclass(frozen=True)
class Click:
    """A program's own item."""

    user: UUID
    page: str

    def key(self) -> bytes:
        """Return the fields that identify the item."""
        return self.user.bytes + self.page.encode()


def constructors(client: redis.Redis) -> None:
    """Every parameter of every class."""
    BloomFilter(client, "seen")
    BloomFilter(client, "seen", local_cache=True)
    BloomFilter(client, name="seen", capacity=None, error_rate=None, layout=None, ttl=None)
    BloomFilter(
        client,
        "seen",
        capacity=1_000_000,
        error_rate=0.001,
        layout="blocked",
        ttl=timedelta(days=7),
        on_lost="recreate",
        on_full="raise",
        retry_safe=True,
        encode=None,
        min_replicas=1,
        replica_timeout=0.5,
        local_cache=timedelta(seconds=2),
    )
    ScalingBloomFilter(
        client,
        "seen",
        capacity=100_000,
        error_rate=0.001,
        expansion=2,
        tightening_ratio=0.5,
        layout="classic",
        ttl=3600,
        on_lost="raise",
    )
    RotatingBloomFilter(
        client,
        "seen",
        capacity=100_000,
        error_rate=0.001,
        window=timedelta(hours=1),
        slices=6,
        layout="blocked",
        retry_safe=False,
    )
    ShardedBloomFilter(
        client, "seen", capacity=10**10, error_rate=0.001, shards=64, seed=7, layout="blocked", ttl=3600
    )
    CountingBloomFilter(client, "seen", capacity=100_000, error_rate=0.001, ttl=3600, min_replicas=1)


def rarer_options(client: redis.Redis, seen: BloomFilter, names: list[str]) -> None:
    """The options that the other functions leave out."""

    def report(done: int, total: int) -> None:
        log.info("%d of %d", done, total)

    RotatingBloomFilter(
        client,
        "seen",
        capacity=1_000,
        error_rate=0.01,
        window=60,
        on_lost="raise",
        min_replicas=1,
        replica_timeout=0.5,
    )
    ScalingBloomFilter(
        client,
        "seen",
        capacity=1_000,
        error_rate=0.01,
        retry_safe=False,
        min_replicas=1,
        replica_timeout=timedelta(seconds=1),
    )
    for kind in (ShardedBloomFilter, CountingBloomFilter):
        kind(client, "seen", on_lost="raise", retry_safe=False, min_replicas=1, replica_timeout=0.5)
    plan(1_000, 0.01, kind="scaling", grown_to=10**6, expansion=4)
    plan(10**10, 0.01, kind="sharded", shards=64, nodes=3)
    assert_type(list(seen.dedupe(names, batch=10)), list[str])
    assert_type(seen.claim_many(names, renew=True), list[Claim])
    seen.merge(BloomFilter.restore(client, "restored", "seen.bloom", progress=report), progress=report)
    seen.copy(client, "copy", progress=report)
    ScalingBloomFilter[Click].adopt(client, "copy", tightening_ratio=0.8, encode=Click.key)


def urls() -> None:
    """A URL in place of a client."""
    seen = BloomFilter.from_url("redis://localhost", "seen", capacity=1_000, error_rate=0.01)
    assert_type(seen, BloomFilter)
    seen.close()
    clicks = BloomFilter[Click].from_url(
        "memory://", "clicks", capacity=1_000, error_rate=0.01, encode=Click.key
    )
    assert_type(clicks, BloomFilter[Click])
    ScalingBloomFilter.from_url("embedded://", "seen", capacity=1_000, error_rate=0.01).close()
    RotatingBloomFilter.from_url("memory://", "seen", capacity=1_000, error_rate=0.01, window=60).close()
    CountingBloomFilter.from_url("memory://", "seen").close()
    ShardedBloomFilter.from_url("redis+cluster://host", "seen", shards=16).close()


def items(seen: BloomFilter, names: list[str]) -> None:
    """One and many items, of every type."""
    assert_type(seen.name, str)
    assert_type(seen.add("a"), bool)
    seen.add(b"a", token=None)
    assert_type(seen.contains(bytearray(b"a")), bool)
    assert_type(memoryview(b"a") in seen, bool)
    assert_type(seen.add_many(["a", b"a", 1]), list[bool])
    seen.add_many(names)
    seen.add_many(range(10))
    assert_type(seen.contains_many(name for name in names), list[bool])
    for name in seen.dedupe(names):
        assert_type(name, str)
    assert_type(list(seen.dedupe([{"id": "a"}], key=lambda row: row["id"])), list[dict[str, str]])
    assert_type(list(seen.dedupe(["a", None], missing="keep")), list[str | None])
    seen.add(np.int64(1))
    assert_type(seen.update(names, progress=lambda done: log.info("%d done", done)), int)
    seen.update(range(10**6), print)
    seen.update(np.arange(10, dtype=np.int64).tolist())
    with Path("urls").open() as lines:
        seen.update(line.rstrip("\n") for line in lines)


def life(client: redis.Redis) -> None:
    """Opening, describing, clearing and deleting a filter."""
    seen = BloomFilter.open(client, "seen")
    assert_type(seen, BloomFilter)
    seen.create()
    assert_type(seen.acknowledge(), bool)
    info = seen.info()
    assert_type(info, FilterInfo)
    assert_type(info.layers, tuple[FilterInfo, ...])
    assert_type(info.window, float | None)
    assert_type(plan(1_000, 0.01, kind="rotating", layout="classic", slices=6), FilterPlan)
    with BloomFilter.from_url("memory://", "closed", capacity=1_000, error_rate=0.01) as closed:
        assert_type(closed, BloomFilter)
    if info.created_at is not None and info.ttl is not None:
        log.info("%s until %s", info.name, info.created_at + timedelta(seconds=info.ttl))
    seen.clear()
    seen.expire(60)
    seen.expire(timedelta(minutes=1))
    assert_type(seen.delete(), bool)
    copy = pickle.loads(pickle.dumps(seen))  # noqa: S301 - its own pickle
    assert isinstance(copy, BloomFilter)
    assert_type(seen.with_client(redis.Redis()), BloomFilter)
    assert_type(seen.update(["a", "b"]), int)
    local = seen.snapshot()
    assert_type(local, LocalFilter)
    assert_type(local.contains("a"), bool)
    assert_type("a" in local, bool)
    assert_type(local.contains_many(["a", 1]), list[bool])
    assert_type(local.info().fill_ratio, float)


def moves(client: redis.Redis, clicks: BloomFilter[Click]) -> None:
    """Whole filters: to a file and back, to another server, and merged."""
    seen = BloomFilter(client, "seen")
    seen.save("seen.bloom", progress=lambda done, total: log.info("%d of %d", done, total))
    seen.save(Path("seen.bloom"))
    assert_type(BloomFilter.restore(client, "copy", "seen.bloom"), BloomFilter)
    with Path("seen.bloom").open("rb") as file:
        assert_type(BloomFilter[Click].restore(client, "copy", file, encode=Click.key), BloomFilter[Click])
    assert_type(seen.copy(client, "copy"), BloomFilter)
    assert_type(clicks.copy(client, "copy"), BloomFilter[Click])
    seen.merge(BloomFilter(client, "other"))
    seen.merge(LocalFilter.open("seen.bloom", verify=False))
    assert_type(LocalFilter[Click].open("seen.bloom", encode=Click.key), LocalFilter[Click])
    sharded = ShardedBloomFilter(client, "seen")
    assert_type(sharded.copy(client, "copy"), ShardedBloomFilter)
    assert_type(ScalingBloomFilter.adopt(client, "seen", expansion=4), ScalingBloomFilter)


def own_items(client: redis.Redis, pipe: Pipeline, clicks: list[Click]) -> Iterator[Click]:
    """With `encode` the items are those that it accepts, in every class."""
    seen = BloomFilter(client, "clicks", capacity=1_000_000, error_rate=0.001, encode=Click.key)
    assert_type(seen, BloomFilter[Click])
    seen.add(clicks[0])
    seen.contains_many(clicks)
    seen.snapshot().contains(clicks[0])
    with seen.claim(clicks[0]) as claim:
        log.info("%s", claim)
    seen.queue_add(pipe, clicks[0])
    scaling = ScalingBloomFilter(client, "s", capacity=1_000, error_rate=0.001, encode=Click.key)
    rotating = RotatingBloomFilter(client, "r", capacity=1_000, error_rate=0.001, window=60, encode=Click.key)
    sharded = ShardedBloomFilter(client, "h", capacity=1_000, error_rate=0.001, encode=Click.key)
    counting = CountingBloomFilter(client, "c", capacity=1_000, error_rate=0.001, encode=Click.key)
    for each in (scaling, rotating, sharded, counting):
        each.add(clicks[0])
        each.update(clicks)
    counting.remove(clicks[0])
    assert_type(BloomFilter(client, "untrusted", encode=keyed("a long enough secret")).add("x"), bool)
    BloomFilter[float](client, "numbers", encode=lambda number: number.hex().encode()).add(1.5)
    yield from seen.dedupe(clicks)


def of_text(seen: BloomFilter[str]) -> None:
    """A filter of all items is accepted as one of text."""
    seen.add("text")


def narrower(client: redis.Redis) -> None:
    """A filter that accepts more item types is accepted in place of one with fewer."""
    of_text(BloomFilter(client, "seen"))


def growing(seen: ScalingBloomFilter) -> None:
    """The methods of a growing filter."""
    seen.add("a", token="t")  # noqa: S106 - not a password
    assert_type("a" in seen, bool)
    seen.add_many(["a"])
    seen.contains_many(["a"])
    seen.expire(60)
    assert_type([layer.capacity for layer in seen.info().layers], list[int])
    seen.clear()


def forgetting(seen: RotatingBloomFilter) -> None:
    """The methods of a rotating filter."""
    if seen.add("a"):
        seen.create()
    assert_type(list(seen.dedupe([1, 2])), list[int])
    seen.delete()


def spread(client: redis.Redis, cluster: redis.RedisCluster) -> None:
    """A sharded filter, over a server and over a cluster."""
    seen = ShardedBloomFilter.open(client, "seen")
    seen = seen.with_client(cluster)
    seen.update(range(1_000))
    seen.expire(60)
    over = ShardedBloomFilter(cluster, "seen", capacity=10**10, error_rate=0.001)
    pipe: ClusterPipeline = cluster.pipeline()  # type: ignore[no-untyped-call]  # pyright: ignore[reportUnknownMemberType] - redis-py has no type for shard_hint
    over.queue_add(pipe, "a")
    pipe.execute()


def counting(online: CountingBloomFilter, pipe: Pipeline) -> None:
    """The methods of a counting filter."""
    online.add("alice")
    try:
        assert_type(online.remove("alice"), bool)
    except OutcomeUnknownError as error:
        online.remove("alice", token=error.token)
    online.queue_add(pipe, "bob")
    online.queue_contains(pipe, "bob")


def queued(client: redis.Redis, seen: BloomFilter) -> None:
    """Calls on a pipeline of the program's own, with MULTI and without."""
    with client.pipeline() as pipe:  # pyright: ignore[reportUnknownMemberType] - redis-py has no type for shard_hint
        seen.queue_add(pipe, "a")
        seen.queue_contains(pipe, "b")
        pipe.set("last", "a")
        added, there, *_ = pipe.execute()
        log.info("%s %s", added, there)
    with client.pipeline(transaction=False) as pipe:  # pyright: ignore[reportUnknownMemberType] - redis-py has no type for shard_hint
        seen.queue_add(pipe, 42)


def claims(seen: BloomFilter, urls: list[str]) -> None:
    """Claims, one and many, by hand and as context managers."""
    with seen.claim(urls[0], lease=60) as claim:
        assert_type(claim, Claim)
        if claim:
            log.info("%s", claim.item)
    claim = seen.claim(urls[0], lease=timedelta(minutes=1))
    if claim.state == "busy":
        log.info("another worker has it")
    for each in seen.claim_many(urls, lease=60):
        try:
            each.extend(60)
            each.commit()
        except ClaimLostError:
            each.release()
    try:
        with claim:
            log.info("nobody looks whether it is held")
    except ClaimUncheckedError as error:
        log.info("%s", error)


def long_claims(seen: BloomFilter, urls: list[str]) -> None:
    """Claims that renew themselves, have a named owner, or go to another process."""
    with seen.claim(urls[0], renew=True, owner="rank-7") as claim:
        while claim and not claim.lost:
            log.info("%.1f s", claim.remaining)
    assert_type(claim.token, str)
    assert_type(claim.is_own, bool)
    assert_type(Claim.from_token(seen, claim.token), Claim)
    log.info("%d bytes", len(pickle.dumps(claim)))


def batches_of_claims(seen: BloomFilter, urls: list[str]) -> None:
    """Many claims in one round trip."""
    claims = seen.claim_many(urls, lease=60, owner="partition 3")
    if "lost" in seen.extend_many(claims, timedelta(minutes=5)):
        seen.release_many(claim for claim in claims if claim)
    states = seen.commit_many(claims)
    assert_type([state == "done" for state in states], list[bool])


def once(seen: BloomFilter, clicks: BloomFilter[Click]) -> None:
    """Functions that run once for an item."""

    def number(order: int, carrier: str) -> str:
        return f"{carrier}-{order}"

    @seen.once("ship", key=number, lease=60, renew=False)
    def ship(order: int, carrier: str) -> bytes:
        return carrier.encode() * order

    outcome = ship(7, carrier="x")
    assert_type(outcome, bytes | Skipped)
    if isinstance(outcome, Skipped):
        log.info("%s %s %.1f", outcome.item, outcome.state, outcome.remaining)
    shipped: WorkItem = ship.item(7, carrier="x")
    assert_type(seen.contains(shipped), bool)

    @clicks.once("count")
    def count(click: Click) -> int:
        return len(click.page)

    assert_type(count(Click(UUID(int=1), "a")), int | Skipped)

    @seen.once("bill", on_busy=lambda item, remaining: remaining)
    def bill(order: str) -> str:
        return order

    assert_type(bill("a"), str | Skipped | float)


def observed(client: redis.Redis) -> None:
    """Events of calls."""

    def report(event: CallEvent) -> None:
        assert_type(event.items, int)
        assert_type(event.new, int | None)
        log.info("%s %s %s %.3f s", event.filter, event.verb, event.outcome, event.seconds)

    instrument(report)
    instrument(lambda event: log.info("%d", event.round_trips))
    instrument(None)

    class Around:
        @contextmanager
        def around(
            self, name: str, kind: str, verb: str
        ) -> Generator[Callable[[CallEvent], None], None, None]:
            log.info("%s.%s of %s begins", kind, verb, name)
            yield report

    instrument(Around())
    instrument(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def columns(seen: BloomFilter, column: NDArray[np.int64]) -> NDArray[np.int64]:
    """Masks of columns."""
    assert_type(seen.contains_mask(column), NDArray[np.bool_])
    return column[seen.add_mask(column)]


def faults(seen: BloomFilter, names: list[str]) -> list[bool]:
    """Every error, with its attributes."""
    try:
        return seen.add_many(names)
    except BatchInterruptedError as error:
        interrupted: BatchInterruptedError[str, bool] = error
        assert_type(interrupted.rest, Sequence[str])
        assert_type(interrupted.results, list[bool])
        return interrupted.results + seen.add_many(interrupted.rest)
    except OutcomeUnknownError as error:
        if error.final:
            raise
        return [seen.add(names[0], token=error.token)]
    except ServerRefusedError as error:
        log.warning("%s", error.word)
        assert_type(error.transient, bool)
    except (FilterNotFoundError, FilterExistsError, FilterMismatchError, FilterFullError):
        seen.delete()
    except FilterLostError:
        seen.create()
    except ConnectionFailedError as error:
        log.warning("%s", error.__cause__)
    except BloomError as error:
        log.warning("%s: %s (%s)", error.problem, error.advice, error.command)
        raise
    return []


def tests_of_a_program() -> None:
    """The helpers for tests."""
    seen = BloomFilter.from_url("memory://", "seen", capacity=1_000, error_rate=0.01)
    with later(timedelta(days=1)), unreachable(seen):
        assert_type(lose(seen), int)
    log.info("%s", bloom_client)
