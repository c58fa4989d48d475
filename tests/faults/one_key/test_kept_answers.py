"""Kept answers and pending calls: each is returned once, and only for its filter."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import redis

from bloomredis import (
    BatchInterruptedError,
    BloomFilter,
    ConnectionFailedError,
    CountingBloomFilter,
    FilterLostError,
    OutcomeUnknownError,
    RotatingBloomFilter,
    ScalingBloomFilter,
    ShardedBloomFilter,
)
from bloomredis.protocol.receipts import RECEIPT_SECONDS
from tests.support.clock import Clock
from tests.support.inside import inside
from tests.support.keys import forget_receipts
from tests.support.losing import LosingClient
from tests.support.proxy import Fate, Proxy, dropped, lost, once_executed, passed, proxied
from tests.support.servers import Server
from tests.support.sizes import long
from tests.support.values import for_each

SIZE: dict[str, Any] = {"capacity": 100_000, "error_rate": 1e-9}


class Interrupted(LosingClient):
    """A client interrupted, as by Ctrl-C, at a call that was executed."""

    def __init__(self, client: redis.Redis) -> None:
        super().__init__(client)
        self.at = 0

    def execute_command(self, *command: Any, **options: Any) -> Any:
        reply = super().execute_command(*command, **options)
        self.at -= 1
        if self.at == 0:
            raise KeyboardInterrupt
        return reply


@for_each("made", [BloomFilter, ScalingBloomFilter])
def test_a_batch_that_is_interrupted(any_server: Server, made: Callable[..., Any]) -> None:
    """Whichever script Ctrl-C interrupts, each item of the batch is new on retry."""
    with any_server.client() as client:
        interrupted: Any = Interrupted(client)
        f = made(interrupted, "seen", **SIZE)
        f.add("warm")
        for at in (1, 2, 5):
            items = [f"{at} {i}" for i in range(2000)]
            interrupted.at = at
            with pytest.raises(KeyboardInterrupt):
                f.add_many(items)
            assert all(f.add_many(items))
            assert not any(f.add_many(items))


def test_a_kept_answer_of_an_item_that_was_removed(any_server: Server) -> None:
    """Its call has counted; the retry gets the answer and does not add the item again."""
    with any_server.client() as client:
        interrupted: Any = Interrupted(client)
        f = CountingBloomFilter(interrupted, "seen", **SIZE)
        f.add("warm")
        interrupted.at = 2
        items = [f"{i}" for i in range(3000)]
        with pytest.raises(KeyboardInterrupt):
            f.add_many(items)
        assert CountingBloomFilter.open(client, "seen").remove(items[0])
        assert f.add(items[0])
        assert not f.contains(items[0])


@for_each("made", [BloomFilter, ScalingBloomFilter])
def test_a_load_takes_no_answers(any_server: Server, made: Callable[..., Any]) -> None:
    """The load does not take the pending answer: a later retry still reports the item as new."""
    with any_server.client() as client:
        interrupted: Any = Interrupted(client)
        f = made(interrupted, "seen", **SIZE)
        f.add("warm")
        interrupted.at = 1
        with pytest.raises(KeyboardInterrupt):
            f.add("a")
        assert f.update(["a", "b"]) == 2
        assert [f.add("a"), f.add("a"), f.add("b")] == [True, False, False]
        assert f.info().count == 3


@for_each("made", [BloomFilter, ScalingBloomFilter])
@for_each("fate", [lost, dropped])
def test_a_load_takes_no_answer_from_a_token(
    any_server: Server, made: Callable[..., Any], fate: Fate
) -> None:
    """The holder of a token hears the answer also after a load of the item, and no other call does."""
    with proxied(any_server.socket) as proxy:
        f = made(proxy.client(), f"{made.__name__} {fate.__name__}", **SIZE)
        f.add("warm")
        proxy.plan("add", fate)
        with pytest.raises(OutcomeUnknownError) as met:
            f.add("a")
        assert f.update(["b", "a", "a"]) == 3
        assert [f.add("a", token=met.value.token), f.add("a"), f.add("b")] == [True, False, False]
        assert f.info().count == 3


class Meanwhile(LosingClient):
    """A client that makes another call before the next command."""

    call: Callable[[], object] | None = None

    def execute_command(self, *command: Any, **options: Any) -> Any:
        call, self.call = self.call, None
        if call is not None:
            call()
        return super().execute_command(*command, **options)


@for_each("made", [BloomFilter, ScalingBloomFilter])
def test_a_load_takes_no_answer_that_is_lost_meanwhile(any_server: Server, made: Callable[..., Any]) -> None:
    """While the load makes one pending call again, another call of the object loses its reply."""
    with any_server.client() as client:
        losing: Any = Meanwhile(client)
        f = made(losing, "seen", **SIZE)
        f.add("warm")

        def lose(item: str) -> None:
            losing.lose = ["lost"]
            with pytest.raises(OutcomeUnknownError):
                f.add(item)

        lose("a")
        losing.call = lambda: lose("b")
        assert f.update(["a", "b"]) == 2
        assert losing.call is None
        assert [f.add("a"), f.add("b"), f.add("a"), f.add("b")] == [True, True, False, False]


def test_claims_that_are_interrupted(any_server: Server) -> None:
    """A retry on the same object holds the claims; they are not lost until their leases run out."""
    with any_server.client() as client:
        interrupted: Any = Interrupted(client)
        f = BloomFilter(interrupted, "seen", **SIZE)
        f.claim("warm").release()
        interrupted.at = 3
        items = [f"{i}" for i in range(1500)]
        with pytest.raises(KeyboardInterrupt):
            f.claim_many(items)
        assert all(f.claim_many(items))


def test_a_kept_answer_of_an_item_that_has_expired(any_server: Server, bloom: Any) -> None:
    """The item is added again, and not only reported as new."""
    with any_server.client() as client:
        f = RotatingBloomFilter(client, "seen", capacity=1000, error_rate=1e-6, window=60, slices=2)
        f.add("warm")
        inside(f).answer_store()([b"x"], [True])  # like a cancelled task
        assert f.add("x")
        assert "x" in f
        assert not f.add("x")


def test_a_late_reply(any_proxy: Proxy, any_server: Server, clock: Clock) -> None:
    """Each item that the late reply reports as new is new once: by its token or by a plain call."""
    with any_server.client() as admin, any_proxy.client(retries=1) as client:
        f = BloomFilter(client, "seen", **SIZE)
        f.add("old")

        def late() -> None:
            clock.advance(RECEIPT_SECONDS + 20)
            forget_receipts(admin)

        any_proxy.plan("add", once_executed(late, passed))
        with pytest.raises(BatchInterruptedError) as caught:
            f.add_many(["new", "old"])
        token = caught.value.tokens[0]
        assert token is not None
        assert f.add("new", token=token)
        assert not f.add("new")


def test_an_item_asked_about_while_layers_are_added(any_server: Server) -> None:
    """A pending item of a scaling filter gets its answer after growth, or a public error."""
    with any_server.client() as client, any_server.client() as other:
        losing: Any = LosingClient(client)
        small: dict[str, Any] = {"capacity": 100, "error_rate": 1e-4}
        f = ScalingBloomFilter(losing, "seen", **small)
        f.add("warm")
        losing.lose = ["never"]
        with pytest.raises(OutcomeUnknownError) as caught:
            f.add("x")
        losing.lose = ["lost"]
        with pytest.raises(OutcomeUnknownError):
            f.add("x", token=caught.value.token)
        ScalingBloomFilter(other, "seen", **small).add_many([f"y{i}" for i in range(400)])
        f.add("this object learns of the layers")
        assert f.add("x")
        assert not f.add("x")


def test_a_loss_that_is_met_late(any_server: Server) -> None:
    """A late error about the old filter's loss is raised, and does not affect the new filter."""
    with any_server.client() as client:
        met, go = threading.Event(), threading.Event()

        class Slow(LosingClient):
            def execute_command(self, *command: Any, **options: Any) -> Any:
                try:
                    return super().execute_command(*command, **options)
                finally:
                    if threading.current_thread() is late and not met.is_set():
                        met.set()
                        go.wait(20)

        slow: Any = Slow(client)
        f = BloomFilter(slow, "seen", **SIZE, on_lost="raise")
        answers: list[object] = []

        def ask() -> None:
            with pytest.raises(FilterLostError):
                f.contains("x")
            answers.append("told")

        late = threading.Thread(target=ask)
        f.add("warm")
        client.delete("seen")
        late.start()
        assert met.wait(20)
        with pytest.raises(FilterLostError):
            f.contains("x")
        f.acknowledge()
        f.add("y")
        go.set()
        late.join()
        assert answers == ["told"]
        assert f.contains("y")


def test_what_is_pending_for_a_filter_that_is_gone(any_server: Server) -> None:
    """A pending item that nobody retries blocks neither the cache nor the answers of later items."""
    with any_server.client() as client:
        losing: Any = LosingClient(client)
        f = BloomFilter(losing, "seen", **SIZE, local_cache=100)
        f.add("warm")
        losing.lose = ["lost"]
        with pytest.raises(OutcomeUnknownError):
            f.add("given up")
        f.add("warm")
        sent = len(losing.sent)
        assert not f.add("warm")
        assert len(losing.sent) == sent
        assert f.add("given up")


def test_a_token_older_than_its_reader(any_server: Server) -> None:
    """However old a token is, "already there" is never said of an item that its own call may have added."""
    with any_server.client() as client:
        losing: Any = LosingClient(client)
        f = BloomFilter(losing, "seen", **SIZE)
        f.add("warm")
        losing.lose = ["lost"]
        with pytest.raises(OutcomeUnknownError) as caught:
            f.add("x")
        assert caught.value.token
        forget_receipts(client)
        *call, sent = caught.value.token.split("/")
        for age in 700, 100_000_000:
            old = "/".join([*call, f"{int(sent, 16) - age:x}"])
            with pytest.raises(OutcomeUnknownError):
                BloomFilter(client, "seen", **SIZE).add("x", token=old)


@pytest.mark.parametrize("seed", [0, 1, *map(long, range(2, 6))])
@pytest.mark.parametrize(
    ("made", "options"),
    [
        (BloomFilter, {}),
        (BloomFilter, {"local_cache": True}),
        (ScalingBloomFilter, {}),
        (ShardedBloomFilter, {"shards": 3}),
    ],
)
def test_singly_and_in_batches(
    any_server: Server, made: Callable[..., Any], options: dict[str, Any], seed: int
) -> None:
    """Over a client that loses requests and replies every item is new once, singly and in batches."""
    dice = random.Random(seed)
    with any_server.client() as client:
        losing: Any = LosingClient(client)
        f = made(losing, f"seen {seed}", **SIZE, **options)
        f.add_many([f"warm {i}" for i in range(50)])
        items = [f"{i}" for i in range(60)]
        new: Counter[str] = Counter()
        for _ in range(200):
            losing.lose = [dice.choice(["answer", "answer", "lost", "never"]) for _ in range(3)]
            batch = dice.choices(items, k=dice.randrange(1, 40))
            try:
                if dice.random() < 0.5:
                    new[batch[0]] += f.add(batch[0])
                else:
                    new.update(item for item, is_new in zip(batch, f.add_many(batch), strict=True) if is_new)
            except BatchInterruptedError as error:
                new.update(item for item, is_new in zip(batch, error.results, strict=False) if is_new)
            except (ConnectionFailedError, OutcomeUnknownError):
                pass
        losing.lose = []
        new.update(item for item, is_new in zip(items, f.add_many(items), strict=True) if is_new)
    assert new == Counter(items)
