"""A program in another language, written from lua/FORMAT.md alone, answers as this library does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from bloomredis import BloomFilter, ShardedBloomFilter
from bloomredis.stored.shards import record as shard_record
from tests.support.servers import Server
from tests.support.sharding import shard_keys
from tests.support.values import for_each

PROGRAM: Final = Path(__file__).with_name("reader.mjs")
ITEMS: Final[list[str | int | bytes]] = [
    item
    for i in range(0, 10_000, 4)
    for item in (i, f"{'x' * (i % 50)}{i}", f"prüfung-{i}", bytes([i % 256]) * (i % 41) + b"\0%d" % i)
]
"""10,000 items of every type, and of every length that the hashes treat differently."""

LAYOUTS: Final[dict[str, tuple[int, dict[str, Any]]]] = {
    "classic": (1, {"layout": "classic", "error_rate": 0.01}),
    "blocks of 256": (2, {"layout": "blocked", "error_rate": 0.001}),
    "blocks of 256, several": (2, {"layout": "blocked", "error_rate": 1e-7}),
    "blocks of 128": (3, {"layout": "blocked", "error_rate": 0.03}),
}
"""The code of each layout in the header, and parameters that choose the layout."""

pytestmark = pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")


def as_bytes(item: str | int | bytes) -> bytes:
    """Return an item's bytes as FORMAT.md defines them."""
    return item if isinstance(item, bytes) else str(item).encode()


def run(name: str, server: Server) -> subprocess.CompletedProcess[str]:
    """Run the program with all items."""
    command = ["node", str(PROGRAM), name, server.socket]
    lines = "".join(f"{as_bytes(item).hex()}\n" for item in ITEMS)
    return subprocess.run(command, input=lines, capture_output=True, text=True, timeout=60, check=False)


def compare(f: Any, server: Server) -> None:
    """Compare the program's answers for all items with those of the filter."""
    result = run(f.name, server)
    assert result.returncode == 0, result.stderr
    expected = f.contains_many(ITEMS)
    assert 5_000 <= sum(expected) < 5_500
    assert result.stdout == "".join("01"[there] for there in expected)


@for_each("layout", LAYOUTS)
def test_plain_filters(server: Server, layout: str) -> None:
    """The program finds the bits of each layout."""
    code, options = LAYOUTS[layout]
    with server.client() as client:
        f = BloomFilter(client, "seen", capacity=6_000, **options)
        f.add_many(ITEMS[::2])
        assert client.getrange("seen", 7, 7) == bytes([code])
        compare(f, server)


@for_each("layout", LAYOUTS)
def test_sharded_filters(server: Server, layout: str) -> None:
    """The program finds the shards; a shard that is only a header has no item."""
    code, options = LAYOUTS[layout]
    with server.client() as client:
        f = ShardedBloomFilter(client, "seen", capacity=12_000, shards=20, **options)
        f.create()
        stored: Any = client.get("seen")
        record = shard_record.parse(stored)
        present = sorted(ITEMS, key=lambda item: record.number(as_bytes(item)))[:5_000]
        f.add_many(present)
        sizes = [client.strlen(key) for key in shard_keys(client)]
        assert client.getrange("seen", 7, 7) == bytes([code])
        assert sizes[-9:] == [64] * 9
        assert min(sizes[:9]) > 64
        compare(f, server)


def spoil(client: redis.Redis, how: str) -> None:
    """Damage the filter or one of its shards in a way that a reader must notice."""
    match how:
        case "later":
            client.setrange("seen", 6, b"\2")
        case "cut":
            stored: Any = client.get("seen")
            client.set("seen", stored[:-1])
        case "lost":
            client.delete(shard_keys(client)[0])


@for_each(("how", "words"), [("later", "version 2"), ("cut", "was cut"), ("lost", "is lost")])
def test_the_program_refuses(server: Server, how: str, words: str) -> None:
    """The program refuses each state that the page tells readers to refuse."""
    with server.client() as client:
        made = ShardedBloomFilter if how == "lost" else BloomFilter
        made(client, "seen", capacity=6_000, error_rate=0.01).add_many(ITEMS[:100])
        spoil(client, how)
    result = run("seen", server)
    assert result.returncode
    assert words in result.stderr
    assert not result.stdout
