"""Frozen filters: keys and files of earlier versions, which every later version must read.

For each case `tests/vectors/frozen.json` has the class, the items, the keys of each server with their
bytes, and the saved file. No case is ever rewritten: ``python -m tests.support.frozen`` adds the missing
ones.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import redis

from bloomredis import (
    BloomFilter,
    CountingBloomFilter,
    RotatingBloomFilter,
    ScalingBloomFilter,
    ShardedBloomFilter,
    keyed,
)
from tests.support.saving import Killed, Mortal, saved
from tests.support.servers import binaries, running
from tests.support.vectors import VECTORS

NAME: Final = "frozen"
SECRET: Final = "frozen, and no secret"  # noqa: S105 - it protects nothing
ITEMS: Final = [f"item-{i}" for i in range(20)]
FEW: Final = ITEMS[:2]
CLAIMED: Final = "claimed"
_PATH: Final = VECTORS / "frozen.json"
_SIZE: Final[dict[str, Any]] = {"capacity": 100, "error_rate": 0.01}
_SHARDED: Final[dict[str, Any]] = {**_SIZE, "shards": 5}
_CENTURY: Final = 100 * 366 * 86_400
"""Seconds of a window whose items have not expired when this is read."""

Make = Callable[[Any], Any]


@dataclass(frozen=True)
class Case:
    """How a filter is made; it then has the items.

    :param of: its class.
    :param make: returns the filter; None if the process that made it has ended.
    """

    of: type[Any]
    make: Make
    items: Sequence[str] = field(default_factory=lambda: ITEMS)


def _new(of: type[Any], items: Sequence[str] = ITEMS, **options: Any) -> Make:
    def make(client: Any) -> Any:
        f = of(client, NAME, **options)
        f.add_many(items)
        return f

    return make


def _adopted(client: Any) -> Any:
    _new(BloomFilter, ITEMS[:15], capacity=15, error_rate=0.01)(client)
    f = ScalingBloomFilter.adopt(client, NAME)
    f.add_many(ITEMS)
    return f


def _restored(client: Any) -> Any:
    file = io.BytesIO(saved(_new(ShardedBloomFilter, FEW, **_SHARDED)(client)))
    client.flushall()
    return ShardedBloomFilter.restore(client, NAME, file)


def _being_restored(client: Any) -> None:
    data = saved(_new(ShardedBloomFilter, **_SHARDED)(client))
    _stop_in(3, client, lambda mortal: ShardedBloomFilter.restore(mortal, NAME, io.BytesIO(data)))


def _being_made(client: Any) -> None:
    _stop_in(4, client, lambda mortal: ShardedBloomFilter(mortal, NAME, **_SHARDED).create())


def _stop_in(state: int, client: redis.Redis, act: Callable[[Any], object]) -> None:
    """Let a process end when its shard record is in that state."""
    for commands in range(200):
        client.flushall()
        try:
            act(Mortal(client, commands))
        except Killed:
            if client.getrange(NAME, 88, 89) == bytes([0, state]):
                return
    raise AssertionError(f"no process ended in state {state}")


def _claimed(client: Any) -> Any:
    f = _new(BloomFilter, **_SIZE)(client)
    assert f.claim(CLAIMED, lease=1e6, owner="somebody").state == "claimed"
    return f


CASES: Final = {
    "classic": Case(BloomFilter, _new(BloomFilter, layout="classic", **_SIZE)),
    "blocks of 256 bits": Case(BloomFilter, _new(BloomFilter, capacity=100, error_rate=1e-7)),
    "blocks of 128 bits": Case(BloomFilter, _new(BloomFilter, **_SIZE)),
    "encoded": Case(BloomFilter, _new(BloomFilter, encode=keyed(SECRET), **_SIZE)),
    "claimed": Case(BloomFilter, _claimed),
    "counting": Case(CountingBloomFilter, _new(CountingBloomFilter, **_SIZE)),
    "scaling": Case(ScalingBloomFilter, _new(ScalingBloomFilter, capacity=8, error_rate=0.01)),
    "adopted": Case(ScalingBloomFilter, _adopted),
    "rotating": Case(
        RotatingBloomFilter, _new(RotatingBloomFilter, capacity=40, error_rate=0.01, window=_CENTURY)
    ),
    "sharded": Case(ShardedBloomFilter, _new(ShardedBloomFilter, **_SHARDED)),
    "sharded, classic": Case(ShardedBloomFilter, _new(ShardedBloomFilter, layout="classic", **_SHARDED)),
    "shards that are a header alone": Case(
        ShardedBloomFilter, _new(ShardedBloomFilter, FEW, **_SHARDED), FEW
    ),
    "restored": Case(ShardedBloomFilter, _restored, FEW),
    "being restored": Case(ShardedBloomFilter, _being_restored),
    "being made": Case(ShardedBloomFilter, _being_made, ()),
}


def frozen() -> dict[str, dict[str, Any]]:
    """Return the cases in the file, by their names."""
    found: dict[str, dict[str, Any]] = json.loads(_PATH.read_text()) if _PATH.exists() else {}
    return found


def _freeze(case: Case) -> dict[str, Any]:
    with running(binaries()["valkey-9"]) as server, server.client() as client:
        f = case.make(client)
        file = saved(f).hex() if f is not None else None
        keys = [dict(_stored(client))]
    return {"class": case.of.__name__, "items": list(case.items), "keys": keys, "file": file}


def _stored(client: redis.Redis) -> Iterator[tuple[str, str]]:
    """Yield each key except receipts, and its bytes."""
    for key in sorted(client.scan_iter()):
        data: Any = client.get(key)
        if b":receipt:" not in key:
            yield key.decode(), data.hex()


def main() -> None:
    """Add the missing cases to the file."""
    known = frozen()
    added = {name: _freeze(case) for name, case in CASES.items() if name not in known}
    _PATH.write_text(json.dumps(known | added, indent=1) + "\n")


if __name__ == "__main__":
    main()
