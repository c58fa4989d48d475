"""Commits that share a script: each is done, denied or refused alone, and a retry gets the same answer."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from bloomredis import BloomFilter, ScalingBloomFilter
from tests.support.keys import claim_key
from tests.support.texts import text_of

pytestmark = pytest.mark.every_server

OWNERS = [b"sixteen bytes %02d" % i for i in range(4)]
CLAIMS = [b"{seen}:claim:%032d" % i for i in range(4)]
SESSIONS = [b"{seen}:receipt:0123456789abcdef-%d" % i for i in range(4)]


@pytest.fixture
def identity(client: redis.Redis) -> Any:
    """The identity of the filter on the server."""
    BloomFilter(client, "seen", capacity=1000, error_rate=0.01, layout="classic").create()
    return client.getrange("seen", 0, 55)


def item(identity: bytes, number: int) -> bytes:
    return bytes([number, 0, 0, 0]) * identity[8]


def held(client: redis.Redis, identity: bytes, *numbers: int) -> None:
    for i in numbers:
        client.set(CLAIMS[i], identity[40:48] + OWNERS[i])


def commit(client: redis.Redis, identity: bytes, *numbers: int, calls: str = "1111") -> Any:
    """Commit the claims with these numbers in one script."""
    packed = b"".join(item(identity, i) for i in numbers)
    keys = [b"seen", *(CLAIMS[i] for i in numbers), *(SESSIONS[i] for i in numbers)]
    owners, names = b"".join(OWNERS[i] for i in numbers), [f"{calls[i]}.00000000" for i in numbers]
    return client.eval(text_of("commit", identity), len(keys), *keys, identity, packed, owners, *names)


def state(client: redis.Redis) -> dict[Any, Any]:
    return {key: client.dump(key) for key in client.scan_iter()}


def count(client: redis.Redis) -> int:
    stored: Any = client.getrange("seen", 56, 63)
    return int.from_bytes(stored)


def test_each_is_answered_by_itself(client: redis.Redis, identity: bytes) -> None:
    """A held claim gets 1, a claim not held 0, a done item 2; a retry gets the same."""
    held(client, identity, 0, 2)
    client.eval(text_of("add", identity), 1, b"seen", identity, item(identity, 3))
    assert commit(client, identity, 0, 1, 2, 3) == b"1012"
    assert count(client) == 3
    assert not client.exists(*CLAIMS)
    before = state(client)
    assert commit(client, identity, 0, 1, 2, 3) == b"1012"
    assert state(client) == before


def test_a_denial_is_repeated_as_it_was(client: redis.Redis, identity: bytes) -> None:
    """A commit of an item that is already in replies 2 each time, never "somebody else may have it"."""
    client.eval(text_of("add", identity), 1, b"seen", identity, item(identity, 0))
    assert [commit(client, identity, 0), commit(client, identity, 0)] == [2, 2]


def test_a_repeat_in_other_company_is_answered_as_at_first(client: redis.Redis, identity: bytes) -> None:
    """Alone or with others, each commit has its own receipt."""
    held(client, identity, 0, 1)
    assert commit(client, identity, 0, 1) == b"11"
    held(client, identity, 2)
    assert commit(client, identity, 1) == 1
    assert commit(client, identity, 0, 2) == b"11"
    assert count(client) == 3


def test_a_session_that_has_gone_on_refuses_its_commit_alone(client: redis.Redis, identity: bytes) -> None:
    """The others are done."""
    held(client, identity, 0, 1, 2)
    assert commit(client, identity, 1, calls="1211") == 1
    held(client, identity, 1)
    assert commit(client, identity, 0, 1, 2) == b"1-1"
    assert client.get(CLAIMS[1]) == identity[40:48] + OWNERS[1]
    assert count(client) == 3


def test_without_receipts(client: redis.Redis, identity: bytes) -> None:
    """The same holds for a filter with retry_safe=False."""
    held(client, identity, 0, 1)
    keys, owners = [b"seen", *CLAIMS[:3]], b"".join(OWNERS[:3])
    packed = b"".join(item(identity, i) for i in range(3))
    text = text_of("commit", identity)
    assert client.eval(text, len(keys), *keys, identity, packed, owners) == b"110"
    assert client.eval(text, len(keys), *keys, identity, packed, owners) == b"220"


def test_a_batch_that_is_malformed_changes_nothing(client: redis.Redis, identity: bytes) -> None:
    """There must be as many claims as items, and as many receipts or none."""
    held(client, identity, 0, 1)
    packed, owners = b"".join(item(identity, i) for i in range(2)), b"".join(OWNERS[:2])
    before = state(client)
    for keys in (
        [b"seen", CLAIMS[0]],
        [b"seen", *CLAIMS[:2], SESSIONS[0]],
        [b"seen", *CLAIMS[:2], *SESSIONS[:3]],
    ):
        with pytest.raises(redis.ResponseError, match="BLOOMARGUMENT"):
            client.eval(
                text_of("commit", identity),
                len(keys),
                *keys,
                identity,
                packed,
                owners,
                "1.00000000",
                "1.0",
            )
        assert state(client) == before


def test_layers_are_begun_between_commits(client: redis.Redis) -> None:
    """A script ends where the newest layer is full; the rest goes into the next one."""
    f = ScalingBloomFilter(client, "grows", capacity=20, error_rate=1e-6)
    claims = f.claim_many([f"{i}" for i in range(150)])
    assert f.commit_many(claims) == ["done"] * 150
    assert f.info().count == 150
    assert f.contains_many([f"{i}" for i in range(150)]) == [True] * 150


def test_many_commits_share_scripts(client: redis.Redis) -> None:
    """Lost claims are reported, and the others are done."""
    f = BloomFilter(client, "many", capacity=1000, error_rate=1e-6)
    claims = f.claim_many([f"{i}" for i in range(450)])
    f.add("7")
    for i in range(0, 450, 9):
        client.delete(claim_key("many", f"{i}"))
    states = f.commit_many(claims)
    assert states == ["lost" if i % 9 == 0 else "done" for i in range(450)]
    assert f.info().count == 400


def test_a_claim_that_was_overwritten_is_lost_alone(client: redis.Redis, identity: bytes) -> None:
    """If a claim's key has another type, the commits before and after it are done, and counted."""
    held(client, identity, 0, 2)
    client.lpush(CLAIMS[1], "not a claim")
    assert commit(client, identity, 0, 1, 2) == b"101"
    assert count(client) == 2
    assert client.type(CLAIMS[1]) == b"list"


def test_an_overwritten_claim_is_busy(client: redis.Redis) -> None:
    """It is not a loss of the filter, and does not block the other items."""
    f = BloomFilter(client, "seen", capacity=1000, error_rate=1e-6)
    client.lpush(claim_key("seen", "1"), "not a claim")
    assert [claim.state for claim in f.claim_many(["0", "1", "2"])] == ["claimed", "busy", "claimed"]
