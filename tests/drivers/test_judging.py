"""What a call is after its attempts: each way of sending calls, over connections with scripted outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, Final

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import MaxConnectionsError, MovedError, NoScriptError, TryAgainError
from redis.retry import Retry

from bloomredis.drivers import aio_running, running
from bloomredis.drivers.connections.aio_direct import AsyncDirectClient
from bloomredis.drivers.connections.direct import DirectClient
from bloomredis.errors import ConnectionFailedError, ServerRefusedError
from bloomredis.protocol import scripts
from bloomredis.protocol.calls import ScriptCall, finish_call
from bloomredis.protocol.gather import gather
from bloomredis.protocol.judging import Verdict, judge
from bloomredis.protocol.steps import Op, Outcome, Reply
from tests.support.inside import idle, take
from tests.support.values import for_each

ADD: Final = scripts.load_script("add", variant=("one", "bits"))
ANSWERED, REFUSED, NOT_SENT, PENDING = Verdict

LOST: Final = redis.ConnectionError("the reply is lost")
NO_CONNECTION: Final = "no connection"
"""Another caller takes the only connection before the next attempt."""
NOSCRIPT: Final = NoScriptError("no such script")
BUSY, OOM, NOPERM, MISSING, CHANGED, FULL = (
    redis.ResponseError(f"{word} x")
    for word in ("BUSY", "OOM", "NOPERM", "BLOOMMISSING", "BLOOMCHANGED", "BLOOMFULL")
)
MOVED: Final = MovedError("866 127.0.0.1:7001")
TRYAGAIN: Final = TryAgainError("x")


class Script:
    """The outcomes of attempts, in order."""

    def __init__(self, outcomes: Sequence[Any]) -> None:
        self.left = list(outcomes)

    def next(self) -> Any:
        outcome = self.left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def is_taken(self) -> bool:
        """Return whether another caller takes the connection now."""
        is_taken = self.left[:1] == [NO_CONNECTION]
        if is_taken:
            self.left.pop(0)
        return is_taken


class Connection(redis.Connection):
    """A connection without a server."""

    def __init__(self, script: Script, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]  # of redis-py
        self.script = script
        self._sock: Any = object()
        self._parser: Any = SimpleNamespace(can_read=lambda _: False)

    def connect(self) -> None: ...
    def disconnect(self, *_: object, **__: object) -> None: ...
    def send_packed_command(self, *_: object, **__: object) -> None: ...

    def can_read(self, *_: object) -> bool:
        return False

    def read_response(self, *_: object, **__: object) -> Any:
        return self.script.next()


class AsyncConnection(redis.asyncio.Connection):
    """A connection without a server, for asyncio."""

    def __init__(self, script: Script, **options: Any) -> None:
        super().__init__(**options)
        self.script = script
        transport = SimpleNamespace(get_write_buffer_size=lambda: 0)
        self._writer: Any = SimpleNamespace(writelines=lambda _: None, transport=transport)

    def __del__(self, *_: object) -> None:
        """Close nothing."""

    @property
    def is_connected(self) -> bool:
        return True

    async def connect(self) -> None: ...
    async def disconnect(self, *_: object, **__: object) -> None: ...
    async def send_packed_command(self, *_: object, **__: object) -> None: ...

    async def can_read_destructive(self) -> bool:
        return False

    can_read = can_read_destructive

    async def read_response(self, *_: object, **__: object) -> Any:
        return self.script.next()


class Pool(redis.ConnectionPool):
    """A pool of one connection."""

    def release(self, connection: Any) -> None:
        super().release(connection)
        take_from(self)


class AsyncPool(redis.asyncio.ConnectionPool):
    """The same for asyncio."""

    async def release(self, connection: Any) -> None:
        await super().release(connection)
        take_from(self)


def filled(pool: Any) -> Any:
    """Return a pool with its connection, unless another caller takes it."""
    idle(pool).append(pool.make_connection())
    take_from(pool)
    return pool


def take_from(pool: Any) -> None:
    """Take the connection for another caller if the script says so."""
    if pool.connection_kwargs["script"].is_taken():
        pool.taken = take(pool, idle(pool)[-1])


class Node:
    """A node of a cluster, as an asyncio client has it: it sends once."""

    name = "owner"

    def __init__(self, script: Script) -> None:
        self.script = script

    async def execute_command(self, *_: object, **__: object) -> Any:
        if self.script.is_taken():
            raise MaxConnectionsError
        return self.script.next()

    async def execute_pipeline(self, queued: Sequence[Any]) -> None:
        if self.script.is_taken():
            raise MaxConnectionsError
        for each in queued:
            try:
                each.result = self.script.next()
            except redis.ResponseError as error:
                each.result = error


class AsyncCluster:
    """A cluster client with one node; it finds the same owner whenever it reads its map."""

    def __init__(self, script: Script) -> None:
        self.node = Node(script)

    def get_node_from_key(self, _: object) -> Node:
        return self.node

    async def initialize(self) -> None: ...

    async def execute_command(self, *_: object) -> Any:
        return 0


class Cluster(AsyncCluster):
    """The same for threads; the node's client has a pool."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.client = client(script, retries=0)

    def get_redis_connection(self, _: object) -> Any:
        return self.client

    def execute_command(self, *_: object) -> Any:
        return 0


OPTIONS: Final[dict[str, Any]] = {
    "retry_on_error": [redis.ConnectionError]
}  # without it redis-py 5 never retries


def client(script: Script, retries: int = 1) -> Any:
    return redis.Redis(
        connection_pool=filled(
            Pool(Connection, 1, script=script, retry=Retry(NoBackoff(), retries), **OPTIONS)
        )
    )


async def async_client(script: Script) -> Any:
    return redis.asyncio.Redis(
        connection_pool=filled(
            AsyncPool(AsyncConnection, 1, script=script, retry=AsyncRetry(NoBackoff(), 1), **OPTIONS)
        )
    )


def direct(script: Script) -> Any:
    return DirectClient(client(script))


async def async_direct(script: Script) -> Any:
    return AsyncDirectClient(await async_client(script))


async def async_cluster(script: Script) -> Any:
    return AsyncCluster(script)


WAYS: Final[dict[str, tuple[Callable[[Script], Any], Callable[[Script], Any]]]] = {
    "direct": (direct, async_direct),
    "client": (client, async_client),
    "cluster": (Cluster, async_cluster),
}
"""The ways of sending calls: the transport for each driver."""


def asked(call: ScriptCall[Reply]) -> Op[Reply]:
    """Make a call."""
    outcome: Outcome
    try:
        outcome = yield call
    except Exception as error:
        outcome = error
    return (yield from finish_call(call, outcome))


def judged(way: str, driver: str, outcomes: Sequence[Any], count: int = 1) -> list[Verdict]:
    """Make calls over scripted connections, several in one round trip; return what each call is."""
    script = Script(outcomes)
    calls = [ScriptCall(ADD, [b"k"], [b"a"]) for _ in range(count)]
    operation = gather([asked(call) for call in calls])

    async def drive() -> Any:
        return await aio_running.drive(await WAYS[way][1](script), operation)

    results = running.drive(WAYS[way][0](script), operation) if driver == "sync" else asyncio.run(drive())
    assert script.left == []
    for call, result in zip(calls, results, strict=True):
        _check_error(judge(call, result), result)
    return [judge(call, result) for call, result in zip(calls, results, strict=True)]


def _check_error(verdict: Verdict, result: Any) -> None:
    """Check that an error says the same as the judge."""
    if isinstance(result, ConnectionFailedError):
        assert verdict is (PENDING if result.sent else NOT_SENT)
    if isinstance(result, ServerRefusedError):
        assert getattr(result, "is_pending", False) == (verdict is PENDING)


EVERYWHERE: Final[dict[str, tuple[list[Any], Verdict]]] = {
    "answered": ([1], ANSWERED),
    "answered, by text": ([NOSCRIPT, 1], ANSWERED),
    "not sent": ([NO_CONNECTION], NOT_SENT),
    "missing": ([MISSING], REFUSED),
    "changed": ([CHANGED], REFUSED),
    "full": ([FULL], REFUSED),
    "lost, then answered": ([LOST, 1], ANSWERED),
    "lost, then answered by text": ([LOST, NOSCRIPT, 1], ANSWERED),
    "lost, then full": ([LOST, FULL], REFUSED),
    "lost, then full by text": ([LOST, NOSCRIPT, FULL], REFUSED),
    "lost, then busy": ([LOST, BUSY], PENDING),
    "lost, then out of memory": ([LOST, OOM], PENDING),
    "lost, then denied": ([LOST, NOPERM], PENDING),
    "lost, then no connection for the text": ([LOST, NOSCRIPT, NO_CONNECTION], PENDING),
    "lost, then busy for the text": ([LOST, NOSCRIPT, BUSY], PENDING),
    "lost, then missing for the text": ([LOST, NOSCRIPT, MISSING], PENDING),
    "lost, then changed for the text": ([LOST, NOSCRIPT, CHANGED], PENDING),
    "lost by text, then busy": ([NOSCRIPT, LOST, BUSY], PENDING),
}
"""What a call is after these attempts, whoever makes them."""

DEPENDING: Final[dict[str, tuple[list[Any], dict[str, Verdict]]]] = {
    # Only over its own connection does the library see each attempt.
    "busy": ([BUSY], {"direct": REFUSED, "client": PENDING, "cluster": PENDING}),
    "out of memory": ([OOM], {"direct": REFUSED, "client": PENDING, "cluster": PENDING}),
    "denied": ([NOPERM], {"direct": REFUSED, "client": PENDING, "cluster": PENDING}),
    "busy, by text": ([NOSCRIPT, BUSY], {"direct": REFUSED, "client": PENDING, "cluster": PENDING}),
    "no connection for the text": (
        [NOSCRIPT, NO_CONNECTION],
        {"direct": NOT_SENT, "client": PENDING, "cluster": PENDING},
    ),
    "changed for the text": ([NOSCRIPT, CHANGED], {"direct": REFUSED, "client": PENDING, "cluster": PENDING}),
    "lost, then missing": ([LOST, MISSING], {"direct": PENDING, "client": REFUSED, "cluster": PENDING}),
    "lost, then changed": ([LOST, CHANGED], {"direct": PENDING, "client": REFUSED, "cluster": PENDING}),
    "lost twice": ([LOST, LOST], {"direct": PENDING, "client": PENDING}),
    "lost four times": ([LOST] * 4, {"cluster": PENDING}),
    # The others resend over the same connection.
    "lost, then no connection": ([LOST, NO_CONNECTION], {"cluster": PENDING}),
    "lost twice, then no connection": ([LOST, LOST, NO_CONNECTION], {"cluster": PENDING}),
    "lost, then moved, then no connection": ([LOST, MOVED, NO_CONNECTION], {"cluster": PENDING}),
    "lost, then moving, then answered": ([LOST, TRYAGAIN, 1], {"cluster": ANSWERED}),
    "moved, then answered": ([MOVED, 1], {"cluster": ANSWERED}),
}
"""What a call is after these attempts, by who makes them."""

TOGETHER: Final[dict[str, tuple[list[Any], list[Verdict], Iterable[str]]]] = {
    "answered": ([1, 1], [ANSWERED, ANSWERED], WAYS),
    "not sent": ([NO_CONNECTION], [NOT_SENT, NOT_SENT], WAYS),
    "refused": ([1, FULL], [ANSWERED, REFUSED], WAYS),
    "busy": ([1, BUSY], [ANSWERED, REFUSED], ["direct"]),
    "busy, by the client": ([1, BUSY], [ANSWERED, PENDING], ["client", "cluster"]),
    "lost, then answered": ([LOST, 1, 1], [ANSWERED, ANSWERED], WAYS),
    "lost, then busy": ([LOST, 1, BUSY], [ANSWERED, PENDING], WAYS),
    "lost, then no connection for the text": (
        [LOST, 1, NOSCRIPT, NO_CONNECTION],
        [ANSWERED, PENDING],
        ["direct", "client"],
    ),
    "lost, then no connection": ([LOST, 1, NO_CONNECTION], [ANSWERED, PENDING], ["cluster"]),
}
"""What two calls are after these attempts in one round trip, and in which ways."""


@for_each("driver", ["sync", "asyncio"])
@for_each("way", WAYS)
@for_each("attempts", EVERYWHERE)
def test_a_call_is_judged_by_all_its_attempts(way: str, driver: str, attempts: str) -> None:
    """A call that was sent once is pending until an attempt is answered."""
    outcomes, verdict = EVERYWHERE[attempts]
    assert judged(way, driver, outcomes) == [verdict]


@for_each("driver", ["sync", "asyncio"])
@for_each("attempts", DEPENDING)
def test_a_client_may_hide_attempts(driver: str, attempts: str) -> None:
    """A server's refusal that the client met may follow a lost attempt that it does not tell of."""
    outcomes, verdicts = DEPENDING[attempts]
    assert {way: judged(way, driver, outcomes) for way in verdicts} == {
        way: [verdict] for way, verdict in verdicts.items()
    }


@for_each("driver", ["sync", "asyncio"])
@for_each("attempts", TOGETHER)
def test_calls_in_one_round_trip_are_judged_alone(driver: str, attempts: str) -> None:
    """A lost attempt loses each of them, and each keeps its own outcome."""
    outcomes, verdicts, ways = TOGETHER[attempts]
    assert {way: judged(way, driver, outcomes, count=2) for way in ways} == dict.fromkeys(ways, verdicts)
