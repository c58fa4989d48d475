"""What a server may refuse inside a script, it refuses before the script's first write.

The reasons are each right to a command that the script uses, the memory, the quorum, and the length of a
string.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

import pytest
import redis

from bloomredis import (
    BloomError,
    BloomFilter,
    CountingBloomFilter,
    OutcomeUnknownError,
    RotatingBloomFilter,
    ScalingBloomFilter,
    ShardedBloomFilter,
    compat,
)
from tests.support.modules import needs_module
from tests.support.proxy import proxied
from tests.support.refusing import Trials
from tests.support.servers import Server


def use_items(f: Any, many: int) -> None:
    """Make every kind of call about items, with answers of each kind."""
    f.add("a")
    f.add_many(["a", "b", "b", *map(str, range(many))])
    f.contains_many(["a", "absent"])
    f.update(range(many, 3 * many))
    if hasattr(f, "expire"):
        f.expire(1000)
        f.add("timed")


def use_claims(f: Any, client: redis.Redis) -> None:
    """Claim, extend, release and commit, one item and several, some of them held by another or done."""
    f.claim("held", lease=60)
    first, second, third = (
        f.claim_many(["free", "held", "a"], lease=60, owner="me"),
        f.claim("c", lease=60),
        f.claim("d", lease=60),
    )
    f.claim_many(["free", "e"], lease=90, owner="me")
    second.extend(600)
    second.commit()
    third.release()
    f.commit_many([first[0], *f.claim_many(["g", "h"], lease=60)])
    lost = f.claim("lost", lease=60)
    for key in client.scan_iter("*:claim:*"):
        client.delete(key)
    with pytest.raises(BloomError):
        lost.commit()


def use_again(make: Callable[..., Any], call: Callable[[Any, str | None], object]) -> None:
    """Make a call that too few replicas confirm, and its retry by another object."""
    with pytest.raises(OutcomeUnknownError) as unknown:
        call(make(min_replicas=1, replica_timeout=0.01), None)
    call(make(), unknown.value.token)


def use_file(f: Any, client: redis.Redis) -> None:
    """Save, restore, copy and merge."""
    file = io.BytesIO()
    f.save(file)
    file.seek(0)
    slot = "" if type(f) is ShardedBloomFilter else "{seen}:"
    restored = type(f).restore(client, f"{slot}restored", file)
    copy = f.copy(client, f"{slot}copied")
    if type(f) is BloomFilter:
        restored.merge(copy)
        copy = ScalingBloomFilter.adopt(client, f"{slot}copied")
    restored.delete()
    copy.delete()


def use_filter(client: redis.Redis, kind: Any = BloomFilter, many: int = 300, **options: Any) -> None:
    """Make every call on a filter, and on a new one with a time to live."""

    def make(**more: Any) -> Any:
        return kind(client, "seen", **options, **more)

    f = make()
    use_items(f, many)
    use_again(make, lambda f, token: f.add("again", token=token))
    if kind is CountingBloomFilter:
        f.remove("a")
        use_again(make, lambda f, token: f.remove("b", token=token))
    use_claims(f, client)
    if options.get("layout") != "module":
        use_file(f, client)
    f.clear()
    f.add("a")
    f.delete()
    f = make() if kind is RotatingBloomFilter else make(ttl=1000)
    f.create()
    f.add_many(["a", "b"])
    f.clear()
    f.delete()


def use_bitmap(client: redis.Redis, layout: Any, many: int = 60, **options: Any) -> None:
    """Make every call on a bitmap of another system."""

    def make(**more: Any) -> Any:
        return BloomFilter(client, "seen", layout=layout, **options, **more)

    f = make()
    use_items(f, many)
    use_claims(f, client)
    if not hasattr(layout, "config"):  # `touch` of a configured filter is refused, since its key is a hash
        use_again(make, lambda f, token: f.add("again", token=token))
    f.delete()


BITMAPS: Final[dict[str, dict[str, Any]]] = {
    "go-zero": {"layout": compat.go_zero(1000)},
    "go-zero, with a ttl": {"layout": compat.go_zero(1000), "ttl": 100},
    "redisson": {"layout": compat.redisson(1000, 0.001)},
    "a chain of bitmaps": {"layout": compat.redis_bitmaps(30, 0.001)},
}
KINDS: Final[dict[str, dict[str, Any]]] = {
    "blocked": {"layout": "blocked"},
    "classic": {"layout": "classic"},
    "counting": {"kind": CountingBloomFilter},
    "scaling": {"kind": ScalingBloomFilter},
    "rotating": {"kind": RotatingBloomFilter, "window": 30_000_000},  # no slice ends meanwhile
    "module": {"layout": "module", "error_rate": 0.01},
    "sharded": {"kind": ShardedBloomFilter, "shards": 2},
    "sharded, classic": {"kind": ShardedBloomFilter, "shards": 2, "layout": "classic"},
}


def use_small(client: redis.Redis, kind: str) -> None:
    """Use every script, with strings that take little time."""
    if kind in BITMAPS:
        use_bitmap(client, **BITMAPS[kind])
    else:
        use_filter(client, **{"capacity": 1000, "error_rate": 1e-6} | KINDS[kind])


LARGE: Final = {
    **dict.fromkeys(("blocked", "classic", "scaling"), 400_000),
    **dict.fromkeys(("sharded", "sharded, classic"), 800_000),
    "counting": 100_000,
    "rotating": 1_300_000,
}
"""Capacities of filters whose strings, or layers or shards, exceed the limit."""


def use_large(client: redis.Redis, kind: str) -> None:
    """Use every script, with strings above the lowered limit."""
    use_filter(client, **KINDS[kind], capacity=LARGE[kind], error_rate=1e-6)


def tried(server: Server, use: Callable[[redis.Redis, str], None], kind: str, *reasons: str) -> set[str]:
    """Use filters through a proxy that tries each script; return the reasons for which it was refused."""
    if kind == "module":
        with server.client() as client:
            needs_module(client)
    trials = Trials(server, {*reasons})
    with proxied(server.socket, trials) as proxy, closing(trials):
        use(proxy.client(), kind)
    assert trials.wrong == []
    return trials.refused


@pytest.mark.faults
@pytest.mark.every_server
@pytest.mark.parametrize("kind", [*KINDS, *BITMAPS])
def test_a_refused_script_changes_nothing(server: Server, kind: str) -> None:
    """Whatever right is missing, and without memory or a quorum, all keys stay as they were."""
    assert tried(server, use_small, kind) > {"OOM", "NOREPLICAS", "get", "set", "unlink"}


@pytest.mark.faults
@pytest.mark.every_server
@pytest.mark.parametrize("kind", LARGE)
def test_a_script_that_is_refused_for_a_length_changes_nothing(server: Server, kind: str) -> None:
    """The same holds if the server no longer allows strings as long as the filter's."""
    assert tried(server, use_large, kind, "SIZE") == {"SIZE"}


def test_refused_scripts_of_some_kinds(server: Server, seed: int) -> None:
    """The two tests above on one server, each for a kind drawn from the seed."""
    drawn = random.Random(seed)
    assert tried(server, use_small, drawn.choice([*sorted(KINDS.keys() - {"module"}), *BITMAPS]))
    server.empty()
    assert tried(server, use_large, drawn.choice([*LARGE]), "SIZE") == {"SIZE"}
