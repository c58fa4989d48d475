"""What a change of structure leaves alone: `python -m benchmarks.freeze --compare benchmarks/freeze.json`.

The file has digests of all scripts, of the requests of usual calls, and of simulated runs, in which clocks
and random bytes are the same each time.  `--compare` prints what differs from it, and then exits with 1.  It
also prints the numbers of functions that calls pass (`benchmarks.profile.walks`) where they differ, which is
allowed.  Without `--compare`, the program prints the file of this checkout.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import random
import re
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from unittest import mock

from benchmarks.profile.walks import walks
from bloomredis import compat, keyed
from bloomredis.protocol import scripts
from tests.simulation import kinds, running
from tests.simulation.__main__ import calls
from tests.simulation.actions import Scenario
from tests.simulation.database import ServerError
from tests.simulation.environment import Environment
from tests.simulation.faults import FAULTS
from tests.simulation.many.faults import FAULTS as FAULTS_OF_MANY
from tests.simulation.processes import Setup
from tests.simulation.server import Server
from tests.support.drivers import DRIVERS
from tests.support.proxy import Exchange, proxied

FUNCTIONS: Final = "functions"
EVERY: Final = {" ".join((each.verb, *each.variant)): each for each in scripts.every_script()}
SCRIPTS: Final = {each.sha.encode(): name.encode() for name, each in EVERY.items()}
TEXTS: Final = {repr(each.text)[1:-1].encode(): name.encode() for name, each in EVERY.items()}
RUNS: Final = 10
STEPS: Final = 200
_SIZE: Final[dict[str, Any]] = {"capacity": 100, "error_rate": 0.01}
FILTERS: Final[dict[str, dict[str, Any]]] = {
    "blocks of 128 bits": _SIZE,
    "blocks of 256 bits": {"capacity": 100, "error_rate": 1e-7},
    "classic": {**_SIZE, "layout": "classic"},
    "module": {**_SIZE, "layout": "module"},
    "encoded": {**_SIZE, "encode": keyed("frozen, and no secret")},
    "without receipts": {**_SIZE, "retry_safe": False},
    "local cache": {**_SIZE, "local_cache": True},
    "ttl": {**_SIZE, "ttl": 1000},
    "full": {"capacity": 3, "error_rate": 0.01, "on_full": "raise"},
    "counting": {**_SIZE, "kind": "CountingBloomFilter"},
    "scaling": {"capacity": 4, "error_rate": 0.01, "kind": "ScalingBloomFilter"},
    "rotating": {**_SIZE, "window": 3600, "kind": "RotatingBloomFilter"},
    "sharded": {**_SIZE, "shards": 3, "kind": "ShardedBloomFilter"},
    "jedis": {"layout": compat.jedis(100, 0.01)},
    "redis_bitmaps": {"layout": compat.redis_bitmaps(100, 0.01)},
}
ASYNCIO: Final = ("blocks of 128 bits", "module", "counting", "scaling", "rotating", "sharded")
MANY: Final = {"on_lost": ("raise", "recreate"), "nodes": (1,)}
CALLS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "create": lambda f, _: f.create(),
    "add": lambda f, _: f.add("a"),
    "add again": lambda f, _: f.add("a"),
    "contains": lambda f, _: f.contains("a"),
    "add_many": lambda f, _: f.add_many(["b", "c", "b", "a"]),
    "contains_many": lambda f, _: f.contains_many(["a", "z"]),
    "claim": lambda f, _: f.claim("d"),
    "commit": lambda _, claim: claim.commit(),
    "claim again": lambda f, _: f.claim("d"),
    "claim another": lambda f, _: f.claim("e"),
    "release": lambda _, claim: claim.release(),
    "claim_many": lambda f, _: f.claim_many(["f", "g"]),
    "commit_many": lambda f, claims: f.commit_many(claims),
    "update": lambda f, _: f.update(f"item {i}" for i in range(50)),
    "remove": lambda f, _: f.remove("a"),
    "info": lambda f, _: f.info().count,
    "expire": lambda f, _: f.expire(500),
    "clear": lambda f, _: f.clear(),
    "delete": lambda f, _: f.delete(),
}
"""The calls by name; each is given the filter and the answer of the call before."""


class Digest:
    """A digest of texts in which a script counts by its name, whatever its own text is."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2s(digest_size=5)

    def update(self, data: bytes) -> None:
        """Add a text, which may have scripts and their SHAs inside."""
        data = re.sub(rb"[0-9a-f]{40}", lambda sha: SCRIPTS.get(sha[0], sha[0]), data)
        if b"EVAL'" in data:
            for text, name in TEXTS.items():
                data = data.replace(text, name)
        self._hash.update(data)

    def hexdigest(self) -> str:
        """Return the digest."""
        return self._hash.hexdigest()


class Requests:
    """A server in this process that records what it gets."""

    def __init__(self) -> None:
        self._server, self._names, self._digest = Server(), list[str](), Digest()

    def __call__(self, exchange: Exchange) -> bool:
        """Execute a request and answer it."""
        if exchange.arguments[0] in (b"HELLO", b"CLIENT"):  # of the client library
            exchange.answer(b"-ERR unknown command\r\n")
            return True
        self._names.append(exchange.verb or exchange.arguments[0].decode())
        self._digest.update(repr(exchange.arguments).encode())
        try:
            reply = _encoded(self._server.execute(exchange.arguments))
        except ServerError as error:
            reply = b"-%b\r\n" % str(error).encode()
        exchange.answer(reply)
        return True

    def taken(self) -> str:
        """Return the names of the last requests, and their digest."""
        names = " ".join(f"{name}*{len([*each])}" for name, each in groupby(self._names))
        text = f"{names} {self._digest.hexdigest()}" if names else "nothing"
        self._names, self._digest = [], Digest()
        return text.replace("*1 ", " ")


def _encoded(reply: Any) -> bytes:
    if isinstance(reply, list):
        return b"*%d\r\n" % len(reply) + b"".join(map(_encoded, reply))
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    return b"$-1\r\n" if reply is None else b":%d\r\n" % reply


def requests(driver: str, options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each call of a filter with its requests and its answer or error."""
    with ExitStack() as stack:
        stack.enter_context(Environment().installed())
        recorded, made = Requests(), DRIVERS[driver]()
        if driver == "asyncio":
            stack.callback(made.close)
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))  # the proxy needs one
        listener.bind(path := stack.enter_context(tempfile.TemporaryDirectory()) + "/socket")
        listener.listen()
        f = made(stack.enter_context(proxied(path, recorded)).client(protocol=2), "f", **options)
        last: Any = None
        for name, call in CALLS.items():
            try:
                answer = call(f, last)
                answer = made.wait(answer) if inspect.isawaitable(answer) else answer
            except Exception as error:
                answer = error
            last = answer
            yield name, f"{recorded.taken()}: {_shown(answer)}"


def _shown(answer: Any) -> str:
    if isinstance(answer, list):
        return ", ".join(map(_shown, answer))
    return type(answer).__name__ if isinstance(answer, Exception) else str(getattr(answer, "state", answer))


def scenario(kind: str, seed: int) -> Scenario:
    """Return the initial state of a run; each option is drawn without regard to the others."""
    one = kinds.KINDS.get(kind)
    shared = one.shared if one else {**MANY, "claims": (False, kind != "RotatingBloomFilter")}
    faults = {*FAULTS} if one else {*FAULTS_OF_MANY}

    def drawn(*name: object, of: Sequence[Any]) -> Any:
        return random.Random(f"{kind} {seed} {name}").choice(of)

    def options(where: str, of: Mapping[str, Sequence[Any]]) -> tuple[tuple[str, Any], ...]:
        return tuple((name, drawn(where, name, of=values)) for name, values in of.items())

    processes = [
        Setup(
            f"p{i}",
            (options(f"p{i}", one.variants if one else {}),),
            retries=i,
            is_async=i == 1,
            is_cluster=i == 2,
        )
        for i in range(3)
    ]
    some = frozenset(name for name in faults if name != "fork" and drawn(name, of=(True, False)))
    return Scenario(kind, options("", shared), tuple(processes), some, frozenset(calls()))


def simulated(kind: str, seed: int) -> str:
    """Return a digest of all messages and answers of a run, and the rule that it broke, if any."""
    simulator, way = running.Simulator(), running.WAYS[kind]
    digest: Any = Digest()  # the simulator names the class of hashlib
    fixed = way._replace(scenario=lambda *_: scenario(kind, seed))
    with simulator.installed(), mock.patch.dict(running.WAYS, {kind: fixed}):
        failure = simulator.draw(seed, kind, (), steps=STEPS, digest=digest)
    return f"{digest.hexdigest()} {failure.violation.rule if failure else 'held'}"


def frozen() -> dict[str, dict[str, Any]]:
    """Return all parts of the file."""
    return {
        "scripts": {name: each.sha[:12] for name, each in EVERY.items()},
        **{
            f"{driver}, {name}": dict(requests(driver, options))
            for driver, names in {"sync": FILTERS, "asyncio": ASYNCIO}.items()
            for name, options in FILTERS.items()
            if name in names
        },
        "simulated": {
            f"{kind} {seed}": simulated(kind, seed) for kind in running.WAYS for seed in range(RUNS)
        },
        FUNCTIONS: {name: walk.figures["calls"] for name, walk in walks().items()},
    }


def main() -> int:
    """Print the file, or what differs from it; return 1 if something but the functions differs."""
    parser = argparse.ArgumentParser("python -m benchmarks.freeze", description=__doc__)
    parser.add_argument("--compare", type=Path, metavar="FILE")
    path = parser.parse_args().compare
    now = frozen()
    if path is None:
        print(json.dumps(now, indent=1))
        return 0
    then, differs = json.loads(path.read_text()), False
    for part in then | now:
        old, new = then.get(part, {}), now.get(part, {})
        for name in old | new:
            if old.get(name) != new.get(name):
                print(f"{part}, {name}: {old.get(name)} -> {new.get(name)}")
                differs |= part != FUNCTIONS
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
