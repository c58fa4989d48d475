"""The shards of the PHP class: each is a filter over its server's client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from zlib import crc32

import pytest
import redis

from bloomredis import compat
from tests.support.systems import InPipeline
from tests.support.values import for_each
from tests.support.vectors import element, vectors

FIRST = vectors("php_bkdr")["extra_v3_partitioned"]
REVISED = [case for case in vectors("php_bkdr_v3")["cases"] if case["servers"] == 3]


@pytest.fixture
def servers(any_client: redis.Redis) -> Iterator[list[redis.Redis]]:
    """Clients of three servers: databases of one."""
    path = any_client.connection_pool.connection_kwargs["path"]
    others = [redis.Redis(unix_socket_path=path, db=db) for db in (1, 2)]
    yield [any_client, *others]
    for other in others:
        other.flushdb()
        other.close()


def each_filter(bloom: Any, shards: Sequence[Any]) -> dict[Any, Any]:
    """Return a filter for each shard."""
    return {each: bloom(each.server, each.key, layout=each.layout) for each in shards}


def test_the_first_version_is_shared(bloom: Any, servers: list[redis.Redis]) -> None:
    """Items that PHP wrote are found, and PHP finds ours: in keys `name.0`, `name.1`, … of the servers.

    The bits are those of v1 and v2; `FIRST` has the keys of some elements.
    """
    cases = [case for case in vectors("php_bkdr")["cases"] if case["num_bits"] == 35_000_000]
    shards = compat.php_bkdr_shards("seen", 35_000_000, 16, servers, partitions=4)
    filters, written = each_filter(bloom, shards), set[tuple[Any, str]]()
    for at, case in enumerate(cases):
        item = element(case)
        checksum = crc32(shards[0].layout.encode(item))
        theirs, where = InPipeline(f"seen.{checksum % 4}"), servers[checksum % 3]
        if at % 2:
            theirs.put(where, case["offsets"])
        own = filters[shards.of(item)]
        assert own.contains(item) == theirs.has(where, case["offsets"])
        own.add(item)
        assert theirs.has(where, case["offsets"])
        written.add((where, theirs.key))
    assert {(where, key) for where in servers for key in keys(where)} == written
    assert len(written) > 8


def test_the_revised_version_is_shared(bloom: Any, servers: list[redis.Redis]) -> None:
    """The same holds for the key `name:0` of each server."""
    shards = compat.php_bkdr_shards("seen", 1_000_003, 8, servers, revised=True)
    filters, theirs = each_filter(bloom, shards), InPipeline("seen:0")
    assert [(each.server, each.key) for each in shards] == [(where, "seen:0") for where in servers]
    cases = [case for case in REVISED if case["num_bits"] == 1_000_003]
    for at, case in enumerate(cases):
        item, where = element(case), servers[case["server"]]
        if at % 2:
            theirs.put(where, case["offsets"])
        own = filters[shards.of(item)]
        assert own.contains(item) == theirs.has(where, case["offsets"])
        own.add(item)
        assert theirs.has(where, case["offsets"])
    assert [keys(where) for where in servers] == [["seen:0"]] * 3


def keys(client: redis.Redis) -> list[str]:
    """Return the keys of a server, without receipts."""
    found: Any = client.keys("*")
    return sorted(key.decode() for key in found if b":receipt:" not in key)


def test_the_first_version_has_the_recorded_keys_and_bits() -> None:
    """One server gets 12 keys for 50e9 bits; each element has the recorded key and offsets."""
    shards = compat.php_bkdr_shards("seen", 50_000_000_000, 16, ["only"])
    assert [each[:2] for each in shards] == [("only", f"seen.{i}") for i in range(12)]
    for case in FIRST:
        own = shards.of(element(case))
        assert own.key == "seen" + case["key_suffix"], case
        assert own.layout.offsets(element(case)) == case["offsets"], case


def test_the_revised_version_has_the_recorded_servers_and_bits() -> None:
    """Each element has the recorded server and offsets, with a share of the bits on each server."""
    assert len(REVISED) > 20
    for case in REVISED:
        shards = compat.php_bkdr_shards("n", case["num_bits"], case["num_hashes"], range(3), revised=True)
        own = shards.of(element(case))
        assert (own.server, own.layout.num_bits) == (case["server"], case["bits_a_server"]), case
        assert own.layout.offsets(element(case)) == case["offsets"], case


def test_a_checksum_chooses_server_and_key() -> None:
    """CRC-32 of "123456789" is 0xCBF43926, the check value of the polynomial."""
    shards = compat.php_bkdr_shards("n", 10**10, 4, ["a", "b", "c"], partitions=5)
    assert shards.of("123456789")[:2] == ("abc"[0xCBF43926 % 3], f"n.{0xCBF43926 % 5}")
    assert {each[:2] for each in shards} == {(server, f"n.{i}") for server in "abc" for i in range(5)}
    assert shards.of(123456789) is shards.of(b"123456789") is shards.of("123456789")


def test_keys_that_stay_empty_are_left_out() -> None:
    """Of two servers with four keys each, one has the even ones."""
    shards = compat.php_bkdr_shards("n", 1000, 4, ["a", "b"], partitions=4)
    assert [each[:2] for each in shards] == [("a", "n.0"), ("b", "n.1"), ("a", "n.2"), ("b", "n.3")]


def test_the_number_of_keys_is_that_of_v3() -> None:
    """ceil(ceil(m / servers) / 2^32) keys a server, and one up to 2^32 bits."""
    assert {each.key for each in compat.php_bkdr_shards("n", 10**10, 4, "ab")} == {"n.0", "n.1"}
    assert {each.key for each in compat.php_bkdr_shards("n", 2**32, 4, "ab")} == {"n.0"}
    assert compat.php_bkdr_shards("n", 2**33, 4, "ab", revised=True)[0].layout.num_bits == 2**32


@for_each(
    ("options", "message"),
    [
        ({"servers": []}, "at least one server"),
        ({"partitions": 0}, "partitions must be at least 1, not 0"),
        ({"num_bits": 0}, "num_bits must be at least 1, not 0"),
        ({"name": ""}, "must not be empty"),
        ({"revised": True, "partitions": 2}, "omit partitions"),
        ({"revised": True, "num_bits": 2**33 + 1}, "at most 4294967296 bits"),
    ],
)
def test_shards_that_cannot_be(options: dict[str, Any], message: str) -> None:
    """The error names what is wrong."""
    given: Any = {"name": "n", "num_bits": 1000, "num_hashes": 4, "servers": ["a", "b"]} | options
    with pytest.raises(ValueError, match=message):
        compat.php_bkdr_shards(**given)
