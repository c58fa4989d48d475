"""The server's time for a call of each script: before scripts were made of pieces, and now, in turns.

``python -m benchmarks.scripts --help`` says which server and how many rounds.  Another program on the machine
changes the times, and hardly the gain, since each round runs both texts.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import redis
from mmh3 import hash_bytes

from bloomredis import BloomFilter, CountingBloomFilter, RotatingBloomFilter, ScalingBloomFilter, compat
from bloomredis.protocol import scripts
from bloomredis.protocol.keys import auxiliary_prefix
from tests.support.generic_scripts import generic
from tests.support.servers import IN_MEMORY, binaries, module_options, running

_SIZE: Final[dict[str, Any]] = {"capacity": 1_000_000, "error_rate": 0.01}


def _four_layers(client: redis.Redis) -> ScalingBloomFilter:
    f = ScalingBloomFilter(client, "four", capacity=5000, error_rate=0.01)
    f.add_many(range(5000 + 10_000 + 20_000 + 2000))  # there is room for 38,000 more
    return f


KINDS: Final[dict[str, Callable[[redis.Redis], Any]]] = {
    "blocked": lambda c: BloomFilter(c, "blocked", **_SIZE, layout="blocked"),
    "classic": lambda c: BloomFilter(c, "classic", **_SIZE, layout="classic"),
    "counting": lambda c: CountingBloomFilter(c, "counting", **_SIZE),
    "scaling": lambda c: ScalingBloomFilter(c, "scaling", **_SIZE),
    "scaling, 4 layers": _four_layers,
    "rotating": lambda c: RotatingBloomFilter(c, "rotating", **_SIZE, window=86_400),
    "bitmap": lambda c: BloomFilter(c, "bitmap", layout=compat.jedis(1_000_000, 0.01)),
    "chain": lambda c: BloomFilter(c, "chain", layout=compat.redis_bitmaps(1_000_000, 0.01)),
    "module": lambda c: BloomFilter(c, "module", **_SIZE, layout="module"),
}
VERBS: Final = ("add", "contains", "claim", "commit", "remove")


@dataclass
class Calls:
    """The calls of a filter's scripts, each about a new item.

    :ivar lanes: the number of connections over which the calls are sent in turns.
    """

    client: redis.Redis
    of: Any
    items: int
    lanes: int = 1
    receipts: Iterator[int] = field(default_factory=itertools.count)
    drawn: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.of.add("warm")
        self.handle = self.of._operations.stored.handle  # noqa: SLF001 - the calls are made without the object's verbs
        self.prefix = auxiliary_prefix(self.handle.key)

    def texts(self, verb: str) -> tuple[str, str] | None:
        """Return the earlier and the present text of a verb, None if the filter has none."""
        variant = self.handle.script_variant
        plain = variant[1:] if self.handle.is_capped else variant
        known = {each[:1] for each in scripts.variants(verb)} | {()}
        if (plain[:1] not in known and scripts.variants(verb) != ((),)) or (
            verb == "remove" and variant != ("one", "counters")
        ):
            return None
        earlier = plain if scripts.variants(verb) != ((),) else ("one",)
        return generic(verb, earlier, 2), scripts.load_script(verb, variant=variant).text

    def drawn_items(self) -> list[bytes]:
        return [b"item %d" % next(self.drawn) for _ in range(self.items)]

    def _tail(self, keys: list[bytes], arguments: list[Any]) -> list[Any]:
        return list(self.handle.tail(keys, arguments))

    def _receipt(self, session: bytes = b"r") -> tuple[bytes, bytes]:
        number = next(self.receipts)
        return self.prefix + b"receipt:%s%d" % (session, number % self.lanes), b"%d.00000000" % (number + 1)

    def _claims(self, items: list[bytes]) -> list[bytes]:
        return [self.prefix + b"claim:" + hash_bytes(item).hex().encode() for item in items]

    def add(self, items: list[bytes]) -> list[Any]:
        receipt, name = self._receipt()
        return self._tail([receipt], [self.handle.layout.pack(items), name])

    remove = add

    def contains(self, items: list[bytes]) -> list[Any]:
        return self._tail([], [self.handle.layout.pack(items)])

    def claim(self, items: list[bytes]) -> list[Any]:
        owners = b"".join(map(hash_bytes, items))
        return self._tail(self._claims(items), [self.handle.layout.pack(items), 60_000, owners])

    def commit(self, items: list[bytes]) -> list[Any]:
        named = [self._receipt(b"c%d-" % i) for i in range(len(items))]
        receipts, names = zip(*named, strict=True)
        owners = b"".join(map(hash_bytes, items))
        return self._tail([*self._claims(items), *receipts], [self.handle.layout.pack(items), owners, *names])


def time_of(client: redis.Redis, sha: str, calls: list[list[Any]], *, pipelined: bool) -> float:
    """Return the microseconds that the server spends in one call."""
    client.config_resetstat()
    send: Any = client.pipeline(transaction=False) if pipelined else client
    for call in calls:
        send.execute_command("EVALSHA", sha, *call)
    if pipelined:
        send.execute()
    found: Any = client.info("commandstats")["cmdstat_evalsha"]
    return float(found["usec"]) / int(found["calls"])


def measure(calls: Calls, verb: str, options: argparse.Namespace) -> list[tuple[float, float]]:
    """Return the times of both texts in each round."""
    client, texts = calls.client, calls.texts(verb)
    if texts is None:
        return []
    shas = [client.script_load(text) for text in texts]
    claim = client.script_load(scripts.load_script("claim", variant=calls.handle.script_variant).text)
    rounds = []
    for _ in range(options.rounds):
        times = []
        for sha in shas:
            batches = [calls.drawn_items() for _ in range(options.calls)]
            if verb == "commit":
                for items in batches:
                    client.evalsha(claim, *calls.claim(items))
            if verb == "remove":
                for items in batches:
                    calls.of.add_many(items)
            made = [getattr(calls, verb)(items) for items in batches]
            times.append(time_of(client, sha, made, pipelined=options.pipelined))
        rounds.append((times[0], times[1]))
    return rounds


def report(client: redis.Redis, options: argparse.Namespace) -> None:
    """Print a line for each kind and verb."""
    print("| filter | verb | bytes | before: min, median us | after: min, median us | after / before |")
    print("|---|---|---|---|---|---|")
    for kind in options.kind or KINDS:
        try:
            calls = Calls(client, KINDS[kind](client), options.items)
        except Exception as error:
            print(f"{kind} is left out: {error}")
            continue
        for verb in VERBS:
            rounds = measure(calls, verb, options)
            if rounds:
                before, after = zip(*rounds, strict=True)
                ratio = statistics.median(new / old for old, new in rounds)
                sizes = " -> ".join(f"{len(text) / 1000:.1f}" for text in calls.texts(verb) or ())
                times = " | ".join(
                    f"{min(each):.1f}, {statistics.median(each):.1f}" for each in (before, after)
                )
                print(f"| {kind} | {verb} | {sizes} K | {times} | {ratio:.2f} |", flush=True)
        client.flushdb()


def main() -> None:
    """Measure on one server."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--server", choices=sorted(binaries()), default="redis-8")
    parser.add_argument("--kind", choices=KINDS, action="append", help="may be repeated")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=200, help="calls in each round")
    parser.add_argument("--items", type=int, default=1, help="items in each call")
    parser.add_argument(
        "--pipelined", action="store_true", help="send a round's calls together: caches stay warm"
    )
    options = parser.parse_args()
    binary = binaries()[options.server]
    with running(binary, *IN_MEMORY, *module_options(binary)) as server, server.client() as client:
        print(
            f"{options.server}: {options.rounds} rounds of {options.calls} calls, {options.items} items each"
        )
        report(client, options)


if __name__ == "__main__":
    main()
