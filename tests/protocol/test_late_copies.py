"""A copy of a call that arrives after its session's next call is refused, and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from bloomredis import BloomFilter
from bloomredis.stored import planning
from tests.support.texts import text_of

pytestmark = pytest.mark.every_server

SESSION = b"{seen}:receipt:0123456789abcdef-0"
CLAIM = b"{seen}:claim:" + b"0" * 32
OWNER = b"sixteen bytes ok"


@pytest.fixture
def identity(client: redis.Redis) -> Any:
    """The identity of the filter on the server."""
    BloomFilter(client, "seen", capacity=1000, error_rate=0.01, layout="classic").create()
    return client.getrange("seen", 0, 55)


def call(client: redis.Redis, verb: str, keys: list[bytes], *arguments: Any) -> Any:
    return client.eval(text_of(verb, arguments[0]), len(keys), *keys, *arguments)


def refused(client: redis.Redis, verb: str, keys: list[bytes], *arguments: Any) -> None:
    """Check that a call is refused because of the next one, and that no key has changed."""
    before = {key: client.dump(key) for key in client.scan_iter()}
    with pytest.raises(redis.ResponseError, match="the session has gone on"):
        call(client, verb, keys, *arguments)
    assert {key: client.dump(key) for key in client.scan_iter()} == before


def count(client: redis.Redis) -> int:
    stored: Any = client.getrange("seen", 56, 63)
    return int.from_bytes(stored)


def test_items_are_counted_once(client: redis.Redis, identity: bytes) -> None:
    """A late copy of a count does not count again; an earlier copy gets the first answer."""
    for number in (1, 1, 2, 2):
        assert call(client, "add_count", [b"seen", SESSION], identity, 5, number) == 5
    assert count(client) == 10
    refused(client, "add_count", [b"seen", SESSION], identity, 5, 1)


def test_a_count_after_which_items_were_added(client: redis.Redis, identity: bytes) -> None:
    """The later call may be of another script."""
    call(client, "add_count", [b"seen", SESSION], identity, 5, 1)
    offsets = b"".join(offset.to_bytes(4, "little") for offset in range(identity[8]))
    assert call(client, "add", [b"seen", SESSION], identity, offsets, 2) == 1
    refused(client, "add_count", [b"seen", SESSION], identity, 5, 1)


def test_an_item_is_committed_once(client: redis.Redis, identity: bytes) -> None:
    """A late copy of a commit does not drop the item's current claim."""
    offsets = [bytes([first, 0, 0, 0]) * identity[8] for first in range(2)]
    for number in (1, 2):
        client.set(CLAIM, identity[40:48] + OWNER)
        arguments = [identity, offsets[number - 1], OWNER, number]
        assert call(client, "commit", [b"seen", CLAIM, SESSION], *arguments) == 1
    client.set(CLAIM, identity[40:48] + OWNER)
    refused(client, "commit", [b"seen", CLAIM, SESSION], identity, offsets[0], OWNER, 1)


def test_a_filter_is_deleted_once(client: redis.Redis, identity: bytes) -> None:
    """A late copy of a deletion spares a filter that was restored since."""
    stored = client.get("seen")
    for number in (1, 2):
        assert call(client, "delete", [b"seen", SESSION], identity, number) == 1
        client.set("seen", stored)  # type: ignore[arg-type]  # the key exists
    refused(client, "delete", [b"seen", SESSION], identity, 1)


def test_a_string_is_renamed_once(client: redis.Redis) -> None:
    """A late copy of a renaming spares what was written under the old name since."""
    for number in (1, 2):
        client.set("{seen}:written", number)
        assert call(client, "rename_new", [SESSION, b"seen", b"{seen}:written"], number) == 1
        client.delete("seen")
    client.set("{seen}:written", 3)
    refused(client, "rename_new", [SESSION, b"seen", b"{seen}:written"], 1)


def test_a_new_item_leaves_the_receipt_of_a_later_call(client: redis.Redis) -> None:
    """Without this, a cloned machine's retry of the later call would find its own item "already there"."""
    BloomFilter(client, "seen", capacity=1000, error_rate=0.01, layout="blocked").create()
    identity: Any = client.getrange("seen", 0, 55)
    mine, theirs = map(planning.plan_layout("blocked", 1000, 0.01).pack_one, (b"mine", b"theirs"))
    for _ in range(2):
        assert call(client, "add", [b"seen", SESSION], identity, mine, 500) == 1
        refused(client, "add", [b"seen", SESSION], identity, theirs, 101)


def test_a_later_receipt_is_kept(client: redis.Redis, identity: bytes) -> None:
    """A question about an earlier call of a session leaves the receipt of its last call."""
    client.set(SESSION, "5:1")
    offsets = bytes(4 * identity[8])
    assert call(client, "add", [b"seen", SESSION + b"/3/0", SESSION], identity, offsets, 1, 3, 0) == 1
    assert client.get(SESSION) == b"5:1"
