"""Data of a later format version is refused with an error that says so, and left unchanged."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import redis

import bloomredis
from bloomredis import BloomFilter, FilterLostError, FilterMismatchError, LocalFilter
from tests.support.frozen import NAME, frozen
from tests.support.values import for_each

FROZEN: Final = {
    name: case for name, case in frozen().items() if len(case["keys"]) == 1 and name != "encoded"
}
FILES: Final = {name: case for name, case in FROZEN.items() if case["file"]}
SAYS: Final = "version 2( of the format)?; this release reads version 1"


def put(client: redis.Redis, name: str) -> None:
    """Put the keys of a frozen filter on a server."""
    for key, data in FROZEN[name]["keys"][0].items():
        client.set(key, bytes.fromhex(data))


def of(name: str) -> Any:
    """Return the class of a frozen filter."""
    return getattr(bloomredis, FROZEN[name]["class"])


def refused(
    client: redis.Redis, act: Callable[[], object], error: type[Exception] = FilterMismatchError
) -> None:
    """Check that a call names the version that it found, and changes no key."""
    before = stored(client)
    with pytest.raises(error, match=SAYS):
        act()
    assert stored(client) == before


def stored(client: redis.Redis) -> dict[bytes, Any]:
    return {key: client.get(key) for key in client.scan_iter()}


@for_each("name", FROZEN)
def test_a_filter(client: redis.Redis, name: str) -> None:
    """No call opens the filter by a later header, layer record or shard record."""
    put(client, name)
    f = of(name).open(client, NAME)
    client.setrange(NAME, 6, b"\2")
    refused(client, lambda: of(name).open(client, NAME))
    for act in (f.clear, f.delete):
        refused(client, act)
        refused(client, f.create)
    refused(client, lambda: f.add("new"))


@for_each(
    "name", [name for name in FROZEN if FROZEN[name]["class"] in ("BloomFilter", "CountingBloomFilter")]
)
def test_a_filter_in_use(client: redis.Redis, name: str) -> None:
    """It counts as lost, as if replaced; acknowledge() then names the later version."""
    put(client, name)
    f = of(name).open(client, NAME)
    assert all(f.contains_many(FROZEN[name]["items"]))
    client.setrange(NAME, 6, b"\2")
    with pytest.raises(FilterLostError, match="replaced"):
        f.add("new")
    refused(client, f.acknowledge)


@for_each("name", [name for name in FROZEN if FROZEN[name]["class"].startswith(("Scaling", "Rotating"))])
def test_a_layer_record_in_use(client: redis.Redis, name: str) -> None:
    """The next call names the version."""
    put(client, name)
    f = of(name).open(client, NAME)
    client.setrange(NAME, 6, b"\2")
    refused(client, lambda: f.add("new"))
    refused(client, lambda: f.contains("new"))


def test_a_new_filter_in_its_place(client: redis.Redis) -> None:
    """An object that would create a filter refuses too."""
    put(client, "classic")
    client.setrange(NAME, 6, b"\2")
    refused(client, lambda: BloomFilter(client, NAME, capacity=100, error_rate=0.01).add("new"))


def later(data: bytes, at: int) -> bytes:
    """Return a file with version 2 in its byte, and with the right checksum."""
    changed = data[:at] + b"\2" + data[at + 1 : -32]
    return changed + hashlib.sha256(changed).digest()


@for_each("where", ["file", "record", "part"])
@for_each("name", FILES)
def test_a_saved_file(any_client: redis.Redis, tmp_path: Path, name: str, where: str) -> None:
    """A file of a later version is refused, and so is one with a later record or header."""
    data = bytes.fromhex(FILES[name]["file"])
    record = int.from_bytes(data[24:28])
    at = {"file": 6, "record": 32 + 6, "part": 32 + record + 8 + 6}[
        where if record else where.replace("record", "part")
    ]
    changed, path = later(data, at), tmp_path / "file"
    path.write_bytes(changed)
    refused(any_client, lambda: of(name).restore(any_client, NAME, io.BytesIO(changed)), ValueError)
    refused(any_client, lambda: LocalFilter.open(path), ValueError)
