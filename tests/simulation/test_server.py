"""The simulated server replies as a real one does, command by command and script by script."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

import pytest
import redis

from bloomredis.bits.module_items import MADE, marking
from bloomredis.errors import BloomError
from bloomredis.operations.claims.state import ClaimOptions, ClaimState
from bloomredis.operations.kinds.counting import CountingOperations
from bloomredis.operations.kinds.plain import PlainOperations
from bloomredis.protocol.replies import unhex
from bloomredis.protocol.steps import Call, Many, Op, joined, parted
from tests.simulation.database import ServerError
from tests.simulation.network import error_of
from tests.simulation.server import START, Server
from tests.support import servers as real_servers
from tests.support.modules import needs_module

Ask = Callable[..., Any]
"""Sends a command and returns its reply."""

KEYS = (b"a", b"b", b"c")
ITEMS = [f"x{i}" for i in range(8)]


@pytest.fixture
def ask(servers: Callable[[str], real_servers.Server]) -> Iterator[Ask]:
    """A function that asks a real, empty server."""
    with servers("valkey-9").client() as client:
        client.flushall()
        client.script_flush()
        client.response_callbacks.clear()
        yield cast("Ask", client.execute_command)


@pytest.fixture
def with_module(ask: Ask, servers: Callable[[str], real_servers.Server]) -> Ask:
    """The same with a server that has the module."""
    with servers("valkey-9").client() as client:
        needs_module(client)
    return ask


def replied(execute: Callable[..., Any], command: tuple[Any, ...]) -> Any:
    """Return a reply, or the first word of an error."""
    try:
        return execute(*command)
    except ServerError as error:
        return word_of(error_of(str(error)))
    except redis.exceptions.ResponseError as error:
        return word_of(error)


def word_of(error: Exception) -> tuple[str, str]:
    """Return the class of an error and the first word of its text, if that is in capitals."""
    word = str(error).split(" ")[0]
    return type(error).__name__, word if word.isupper() else ""


def drawn(rng: random.Random) -> tuple[Any, ...]:
    """Return a command that the scripts use, with random arguments."""
    key, number, offset = rng.choice(KEYS), rng.randrange(-3, 40), rng.randrange(200)
    value = rng.randbytes(rng.randrange(12))
    deadline = START // 1000 + 10**12
    field = (b"u4", b"#%d" % rng.randrange(30))
    return rng.choice(
        (
            ("GET", key),
            ("SET", key, value),
            ("SET", key, value, "PX", 10**9),
            ("SET", key, value, "PXAT", deadline),
            ("SET", key, value, rng.choice(("XX", "NX")), "KEEPTTL"),
            ("SET", key, b"%d" % number),
            ("GETRANGE", key, number, rng.randrange(-3, 40)),
            ("SETRANGE", key, max(0, number), value),
            ("STRLEN", key),
            ("INCR", key),
            ("GETBIT", key, offset),
            ("SETBIT", key, offset, rng.randrange(2)),
            ("BITCOUNT", key),
            ("BITCOUNT", key, max(0, number), -1),
            ("BITOP", "OR", key, rng.choice(KEYS), rng.choice(KEYS)),
            ("BITFIELD", key, "GET", *field),
            ("BITFIELD", key, "OVERFLOW", "SAT", "INCRBY", *field, rng.choice((1, -1, 9)), "GET", *field),
            ("HSET", key, b"f%d" % rng.randrange(3), value),
            ("HGET", key, b"f%d" % rng.randrange(3)),
            ("EXISTS", *rng.sample(KEYS, 2)),
            ("UNLINK", *rng.sample(KEYS, rng.randrange(1, 3))),
            ("DEL", key),
            ("RENAME", key, rng.choice(KEYS)),
            ("PERSIST", key),
            ("PEXPIRE", key, rng.choice((10**9, 0, -5))),
            ("PEXPIREAT", key, deadline),
            ("UNKNOWN", key),
        )
    )


@pytest.mark.parametrize("seed", range(20))
def test_commands_reply_alike(ask: Ask, seed: int) -> None:
    """Random commands get the replies of a real server, and leave the same values."""
    compare_commands(ask, seed, drawn, 200)


def compare_commands(
    ask: Ask, seed: int, draw: Callable[[random.Random], tuple[Any, ...]], count: int
) -> None:
    """Send commands to both servers, and compare the replies and the keys."""
    rng, server = random.Random(seed), Server()
    for _ in range(count):
        command = draw(rng)
        assert replied(lambda *words: server.execute(words), command) == replied(ask, command)
        for key in KEYS:
            assert bool(server.data.find(key) is None) == (ask("EXISTS", key) == 0)
            expires = server.execute(("PTTL", key)), ask("PTTL", key)
            assert (expires[0] < 0, min(expires[0], 0)) == (expires[1] < 0, min(expires[1], 0))


def drawn_of_module(rng: random.Random) -> tuple[Any, ...]:
    """Return a command of the module, with random arguments."""
    key, items = rng.choice(KEYS), [rng.choice(ITEMS) for _ in range(rng.randrange(1, 5))]
    size = ("CAPACITY", 500, "ERROR", "1e-9", "EXPANSION", 2)
    return rng.choice(
        (
            ("BF.INSERT", key, *size, "ITEMS", *items),
            ("BF.ADD", key, items[0]),
            ("BF.MADD", key, *items),
            ("BF.EXISTS", key, items[0]),
            ("BF.MEXISTS", key, *items),
            ("BF.MEXISTS", key, *items),
            *(
                ("SET", key, b"x"),
                ("UNLINK", key),
                ("RENAME", key, rng.choice(KEYS)),
                ("PEXPIRE", key, 10**9),
            ),
            ("GET", key),
        )
    )


@pytest.mark.parametrize("seed", range(5))
def test_commands_of_the_module_reply_alike(with_module: Ask, seed: int) -> None:
    """Random commands get the replies of the real module."""
    compare_commands(with_module, seed, drawn_of_module, 300)


class Both:
    """Runs operations on both servers, and compares the reply to every command."""

    def __init__(self, ask: Ask, server: Server) -> None:
        self._ask, self._server = ask, server
        self.compared = 0

    def __call__(self, operation: Any) -> Any:
        """Return an operation's answer or error."""
        try:
            step = next(operation)
            while True:
                calls = step.calls if isinstance(step, Many) else [step]
                replies = parted(calls, [self._both(command) for command in joined(calls)])
                if isinstance(step, Call) and isinstance(replies[0], Exception):
                    step = operation.throw(replies[0])
                else:
                    step = operation.send(replies[0] if isinstance(step, Call) else replies)
        except StopIteration as end:
            return end.value

    def _both(self, command: tuple[Any, ...]) -> Any:
        if command[0] == "WAIT":  # a real server without replicas waits for its timeout
            return self._server.execute(command)
        real = self._replied(lambda: self._ask(*command))
        is_description = isinstance(real, list) and len(real) == 3 and isinstance(real[0], bytes)
        if is_description:  # new filters have a date of the real clock
            self._server.data.now = int.from_bytes(unhex(real[0])[48:56], "big")
        simulated = self._replied(lambda: self._server.execute(command))
        is_made = isinstance(real, list) and len(real) == 5 and isinstance(real[0], bytes) and real[0]
        if is_made:  # whose generation contains the real time
            values = self._server.data.values
            values[command[3]] = values[command[3]]._replace(items=marks_of(unhex(real[0])))
        if isinstance(real, Exception):
            assert word_of(simulated) == word_of(real)
        else:
            assert _timeless(simulated) == _timeless(real)
        self.compared += 1
        return real

    def _replied(self, execute: Callable[[], Any]) -> Any:
        try:
            return execute()
        except ServerError as error:
            return error_of(str(error))
        except redis.exceptions.ResponseError as error:
            return error


def marks_of(generation: bytes) -> frozenset[bytes]:
    """Return the marker items of a module's filter."""
    marks = marking(1e-9)
    spelled = [b"\0bloomr%x%s0" % (i, digit.encode()) for i, digit in enumerate(generation.hex())]
    return frozenset([*marks.of(generation), *marks.signature(MADE), *spelled])


def _timeless(reply: Any) -> Any:
    """Return a reply without the remaining leases of busy items, or the module's sizes."""
    if isinstance(reply, list) and len(reply) == 5 and isinstance(reply[2], list):
        created, ttl, about, _, answers = reply
        return bool(created), ttl, about[7], b"" if created else answers
    return re.sub(rb" \d+", b" ms", reply) if isinstance(reply, bytes) and reply[:1] in b"cdb" else reply


def claimed(operation: Op[ClaimState], held: list[ClaimState]) -> Op[None]:
    """Add the claim that an operation returns to a list."""
    held.append((yield from operation))


def ended(f: Any, verb: str, claim: ClaimState) -> Any:
    """Run a call about a claim, which ends it only when it begins."""
    yield from f.answer_one(f.extend(claim, 2000) if verb == "extend" else f.end(verb, claim))


def called(rng: random.Random, f: Any, held: list[ClaimState]) -> Any:
    """Return a random call of a filter."""
    item, some = rng.choice(ITEMS), rng.choices(ITEMS, k=rng.randrange(2, 30))
    ready = [each for each in held if each.status == "claimed"]
    calls = [f.add(item), f.contains(item), f.add_many(some), f.contains_many(some)]
    calls += [
        claimed(f.answer_one(f.claim(item, ClaimOptions.of(1000, None))), held),
        f.claim_many(some[:3], 1000, held.append),
    ]
    calls += [f.info()] if rng.random() < 0.1 else []
    calls += [f.clear(), f.delete(), f.create()] if rng.random() < 0.1 else []
    calls += [f.remove(item)] if isinstance(f, CountingOperations) else []
    if ready:
        claim = rng.choice(ready)
        calls += [ended(f, "commit", claim), ended(f, "release", claim), ended(f, "extend", claim)]
    return rng.choice(calls)


def test_scripts_of_the_module_reply_alike(with_module: Ask) -> None:
    """Random calls of a module's filter get the replies of a real server."""
    compare(
        with_module, PlainOperations("f", capacity=300, error_rate=1e-9, layout="module", on_lost="recreate")
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: PlainOperations("f", capacity=300, error_rate=1e-9, on_lost="recreate"),
        lambda: PlainOperations("f", capacity=300, error_rate=1e-3, on_lost="recreate", min_replicas=1),
        lambda: PlainOperations("f", capacity=300, error_rate=1e-9, layout="classic", on_lost="recreate"),
        lambda: CountingOperations("f", capacity=300, error_rate=1e-6, on_lost="recreate"),
    ],
    ids=["blocked", "waiting", "classic", "counting"],
)
def test_scripts_reply_alike(ask: Ask, make: Callable[[], Any]) -> None:
    """Random calls of a filter get the replies of a real server, errors included."""
    compare(ask, make())


def compare(ask: Ask, f: Any) -> None:
    """Make random calls of a filter on both servers."""
    rng, server = random.Random(7), Server()
    server.replicas = 0
    both = Both(ask, server)
    held: list[ClaimState] = []
    for _ in range(400):
        with suppress(BloomError):
            both(called(rng, f, held))
        if rng.random() < 0.02:
            ask("SCRIPT", "FLUSH")
            server.execute(("SCRIPT", "FLUSH"))
    assert both.compared > 400


def test_a_key_expires_by_the_simulated_clock() -> None:
    """A key with a time to live is gone at that time of the simulated clock."""
    server = Server()
    server.execute(("SET", "k", "v", "PX", 1500))
    server.data.now += 1_499_000
    assert server.execute(("GET", "k")) == b"v"
    server.data.now += 1_000
    assert server.execute(("GET", "k")) is None
    assert server.data.alive() == []


def test_an_older_state_comes_back() -> None:
    """A restored snapshot has its values and times of expiry."""
    server = Server()
    server.execute(("SET", "k", "1", "PX", 1000))
    before = server.data.snapshot()
    server.execute(("SET", "k", "2"))
    server.execute(("SET", "l", "2"))
    server.data.restore(before)
    assert (server.execute(("GET", "k")), server.execute(("PTTL", "k"))) == (b"1", 1000)
    assert server.execute(("GET", "l")) is None


def test_a_right_is_missed_where_the_script_needs_it() -> None:
    """A denied command fails inside a script, and earlier writes stay."""
    server = Server()
    server.denied = frozenset({"set"})
    script = "redis.call('INCR', KEYS[1]) redis.call('SET', KEYS[1], 'x')"
    with pytest.raises(ServerError, match="NOPERM"):
        server.execute(("EVAL", script, 1, "k"))
    assert server.execute(("GET", "k")) == b"1"
