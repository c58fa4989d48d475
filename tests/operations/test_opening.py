"""Calls of one object that open, acknowledge, clear and delete at the same time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

import pytest
import redis

from bloomredis import (
    BloomFilter,
    CountingBloomFilter,
    FilterMismatchError,
    OutcomeUnknownError,
    ScalingBloomFilter,
    ShardedBloomFilter,
)
from bloomredis.drivers.running import drive
from bloomredis.operations.kinds.counting import CountingOperations
from bloomredis.operations.kinds.plain import PlainOperations
from bloomredis.operations.kinds.scaling import ScalingOperations
from bloomredis.operations.kinds.sharded import ShardedOperations
from bloomredis.protocol.pending import PendingCalls
from bloomredis.stored.shards import record as shard_record
from tests.support.inside import lock_of

KINDS: Final[dict[str, Callable[..., Any]]] = {
    "plain": PlainOperations,
    "counting": CountingOperations,
    "scaling": ScalingOperations,
}


@pytest.mark.parametrize(
    "kind",
    [BloomFilter, CountingBloomFilter, ScalingBloomFilter, ShardedBloomFilter],
    ids=lambda k: k.__name__,
)
def test_a_ttl_that_a_stored_filter_has_not(
    client: redis.Redis, kind: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """An object warns once if it asks for a `ttl` and the stored filter never expires, else never."""
    kind(client, "seen", capacity=1000, error_rate=0.01).add("a")
    assert not caplog.records
    later = kind(client, "seen", capacity=1000, error_rate=0.01, ttl=60)
    later.add_many(["b", "c"])
    later.add("d")
    assert [record.getMessage() for record in caplog.records] == [
        "'seen' never expires: ttl=60 is for a filter that this object creates; expire() sets it now"
    ]
    caplog.clear()
    later.expire(60)
    kind(client, "seen", capacity=1000, error_rate=0.01, ttl=60).add("e")
    kind(client, "new", capacity=1000, error_rate=0.01, ttl=60).add("e")
    assert not caplog.records


class InFlight:
    """An operation whose commands are executed before their replies arrive."""

    def __init__(self, client: redis.Redis, operation: Generator[Any, Any, Any]) -> None:
        self._client: Any = client
        self._operation = operation
        self._step: Any = next(operation)
        self._reply: Any = None

    def execute(self) -> InFlight:
        """Let the server execute the next step."""
        (command,) = self._step.commands
        try:
            self._reply = self._client.execute_command(*command)
        except redis.ResponseError as error:
            self._reply = error
        return self

    def reply(self) -> InFlight:
        """Let the reply arrive."""
        arrived, self._reply = self._reply, None
        go_on = self._operation.throw if isinstance(arrived, Exception) else self._operation.send
        self._step = go_on(arrived)
        return self

    def lost(self) -> None:
        """Break the connection."""
        with pytest.raises(OutcomeUnknownError):
            self._operation.throw(redis.ConnectionError())

    def ended(self) -> Any:
        """Run the operation to its end; return its answer."""
        if self._reply is not None:
            try:
                self.reply()
            except StopIteration as end:
                return end.value
        return drive(self._client, self._rest())

    def _rest(self) -> Generator[Any, Any, Any]:
        step = self._step
        try:
            while True:
                try:
                    answer = yield step
                except Exception as error:
                    step = self._operation.throw(error)
                else:
                    step = self._operation.send(answer)
        except StopIteration as end:
            return end.value


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, any_client: redis.Redis) -> Callable[[], Any]:
    """Make an object, with scripts loaded on the server."""

    def made() -> Any:
        return KINDS[request.param]("seen", capacity=100, error_rate=0.01)

    for call in (made().add("a"), made().clear(), made().delete()):
        drive(any_client, call)
    return made


def test_an_acknowledgement_outlasts_an_older_open(make: Callable[[], Any], any_client: redis.Redis) -> None:
    """An open of the replaced filter that gets its reply during acknowledge() does not undo it."""
    f = make()
    add = InFlight(any_client, f.add("x")).execute()
    drive(any_client, make().clear())
    acknowledging = InFlight(any_client, f.acknowledge()).execute()
    add.reply()
    acknowledging.ended()
    assert drive(any_client, f.add("y"))
    assert add.ended()
    assert drive(any_client, f.contains_many(["x", "y"])) == [True, True]


def test_the_last_of_two_clears_counts(make: Callable[[], Any], any_client: redis.Redis) -> None:
    """The second clear counts, even if the first one's reply comes later."""
    f = make()
    drive(any_client, f.create())
    first = InFlight(any_client, f.clear()).execute().reply().execute()
    drive(any_client, f.clear())
    first.ended()
    assert drive(any_client, f.add("x"))


def test_a_clear_forgets_no_later_call(any_client: redis.Redis) -> None:
    """A call whose reply was lost after the clear keeps its answer, even if the object is opened again."""
    f = ShardedOperations("seen", capacity=100, error_rate=0.01, shards=1)
    for call in (f.add("a"), f.clear(), f.create()):
        drive(any_client, call)
    before = any_client.get("seen")
    clear = InFlight(any_client, f.clear()).execute()
    while _in_use(any_client) in (None, _in_use(any_client, before)):
        clear.reply().execute()
    InFlight(any_client, f.add("x")).execute().reply().execute().lost()
    InFlight(any_client, f.create())
    clear.ended()
    assert drive(any_client, f.add("x")) is True


def test_a_full_filter_is_told_of_once(any_client: redis.Redis, caplog: pytest.LogCaptureFixture) -> None:
    """Of two calls that find it full at the same time, and a load that looks at its count meanwhile."""
    f = PlainOperations("seen", capacity=2, error_rate=0.01)
    drive(any_client, f.add_many(["a", "b"]))
    look = InFlight(any_client, f.stored.look_at_count(1))
    calls = [InFlight(any_client, f.add(item)).execute() for item in "xy"]
    assert [call.ended() for call in calls] == [True, True]
    look.ended()
    assert caplog.text.count("is full") == 1


def test_a_look_at_the_count_undoes_no_clear(any_client: redis.Redis) -> None:
    """The filter was past its capacity when it was read."""
    f = PlainOperations("seen", capacity=2, error_rate=0.01)
    drive(any_client, f.add("a"))
    drive(any_client, f.stored.current())  # which loads the script
    any_client.setrange("seen", 56, (5).to_bytes(8, "big"))  # what a load has added
    look = InFlight(any_client, f.stored.look_at_count(1)).execute()
    drive(any_client, f.clear())
    look.ended()
    assert drive(any_client, f.add("x")) is True


def test_a_clear_looks_at_the_generation_while_nothing_is_added() -> None:
    """Another thread may clear again, and lose a reply, between the look and the clear."""
    pending = PendingCalls()

    def present() -> bytes:
        assert lock_of(pending).locked()
        return b"new"

    for generation in (b"old", b"new"):
        pending.add([generation], "session", "1.0", generation, 0.0)
    pending.clear(present)
    assert list(pending.items) == [b"new"]


def _in_use(client: redis.Redis, stored: Any = None) -> bytes | None:
    """Return the generation of a sharded filter that is in use."""
    found: Any = stored or client.get("seen")
    record = shard_record.parse(found)
    return record.head.generation if record.state == shard_record.IN_USE else None


def test_delete_is_no_loss_for_who_opens_meanwhile(make: Callable[[], Any], any_client: redis.Redis) -> None:
    """An open executed before the filter was deleted is repeated."""
    f = make()
    add = InFlight(any_client, f.add("x")).execute()
    assert drive(any_client, f.delete())
    assert add.ended()
    assert drive(any_client, f.contains("x"))


def test_delete_keeps_what_a_newer_filter_owes(make: Callable[[], Any], any_client: redis.Redis) -> None:
    """A pending add that recreated the filter before delete()'s reply still gets its answer."""
    f = make()
    drive(any_client, f.create())
    delete = InFlight(any_client, f.delete()).execute().reply().execute()
    f.stored.known.emptied()
    InFlight(any_client, f.add("x")).execute().reply().execute().lost()
    assert delete.ended()
    assert drive(any_client, f.add("x"))


def test_clear_lets_go_of_a_filter_that_it_replaced(make: Callable[[], Any], any_client: redis.Redis) -> None:
    """The object drops the replaced filter even if it is interrupted while it compares the two."""
    f = make()
    drive(any_client, f.create())
    clear = InFlight(any_client, f.clear()).execute().reply()
    drive(any_client, f.create())
    clear.execute().reply().lost()
    assert f.stored.handle is None


def test_a_key_of_another_type_is_not_opened(bloom: Any, client: Any) -> None:
    """The error says so, also on a server without the module."""
    client.rpush("seen", "a")
    with pytest.raises(FilterMismatchError, match="'seen' holds no Bloom filter"):
        bloom.open(client, "seen")
