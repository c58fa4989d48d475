"""Malformed arguments sent to the scripts: each raises an error, and no bit changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from bloomredis import BloomFilter, CountingBloomFilter, RotatingBloomFilter, ScalingBloomFilter
from bloomredis.protocol import scripts
from bloomredis.stored import planning
from tests.support.inside import inside
from tests.support.servers import Server
from tests.support.texts import text_of
from tests.support.values import for_each

pytestmark = pytest.mark.every_server

RANDOM = random.Random(1)
SESSION = b"{seen}:receipt:0123456789abcdef-0"


def u32(*offsets: int) -> bytes:
    return b"".join(offset.to_bytes(4, "little") for offset in offsets)


@pytest.fixture
def stored(server: Server) -> Iterator[tuple[redis.Redis, bytes]]:
    """A client whose server has a filter, and the filter's identity."""
    with server.client() as client:
        BloomFilter(client, "seen", capacity=10_000, error_rate=1e-9, layout="classic").add("a")
        yield client, client.getrange("seen", 0, 55)


@pytest.fixture
def stored_blocks(server: Server) -> Iterator[tuple[redis.Redis, bytes]]:
    """The same with a filter in the blocked layout."""
    with server.client() as client:
        BloomFilter(client, "seen", capacity=10_000, error_rate=1e-9, layout="blocked").add("a")
        yield client, client.getrange("seen", 0, 55)


@pytest.fixture
def stored_counters(server: Server) -> Iterator[tuple[redis.Redis, bytes]]:
    """The same with a counting filter."""
    with server.client() as client:
        CountingBloomFilter(client, "seen", capacity=10_000, error_rate=1e-9).add("a")
        yield client, client.getrange("seen", 0, 55)


def refused(client: redis.Redis, verb: str, keys: list[bytes], arguments: list[Any]) -> None:
    """Check that a script refuses a call and leaves the filter unchanged."""
    before = client.get("seen")  # each kind's key is a string; DUMP would compress it
    with pytest.raises(redis.ResponseError):
        client.eval(text_of(verb, arguments[0] if arguments else b""), len(keys), *keys, *arguments)
    assert client.ping()
    assert client.get("seen") == before


BAD_IDENTITIES = [b"", b"x", bytes(55), bytes(56), bytes(57), RANDOM.randbytes(56), RANDOM.randbytes(64)]
HASHES = 30  # at this error rate
BAD_OFFSETS = {
    "none": b"",
    "a byte": b"\0",
    "one offset": u32(0),
    "a byte short": u32(*range(HASHES))[:-1],
    "a byte long": u32(*range(HASHES)) + b"\0",
    "an item and a half": u32(*range(HASHES * 3 // 2)),
    "out of range": u32(*range(HASHES - 1), 2**32 - 1),
    "just out of range": b"",  # set from the filter's size
    "a later one out of range": u32(*range(HASHES * 50 - 1), 2**31),
    "too many": u32(*range(HASHES)) * 137,
    "far too many": u32(*range(HASHES)) * 10_000,
} | {f"{size} random bytes": RANDOM.randbytes(size) for size in (7, 28, 56, 120, 240, 3600, 12_000, 16_384)}


CLAIM = b"{seen}:claim:" + b"0" * 32
OWNER = bytes(16)


def bad_offsets(name: str, head: bytes) -> bytes:
    """Return malformed offsets for the filter with that identity."""
    if name == "just out of range":
        return u32(*range(HASHES - 1), int.from_bytes(head[16:24]))
    return BAD_OFFSETS[name]


@for_each("verb", ["add", "contains", "claim", "commit"])
@for_each("offsets", BAD_OFFSETS)
def test_bad_offsets(stored: tuple[redis.Redis, bytes], verb: str, offsets: str) -> None:
    """Malformed offsets are refused before a bit is touched."""
    client, head = stored
    assert client.getrange("seen", 8, 8) == bytes([HASHES])
    keys = [b"seen", CLAIM] if verb in ("claim", "commit") else [b"seen"]
    rests: dict[str, list[Any]] = {"claim": [1000, OWNER], "commit": [OWNER]}
    refused(client, verb, keys, [head, bad_offsets(offsets, head), *rests.get(verb, [])])
    assert not client.exists(CLAIM)
    if verb == "add":
        refused(client, verb, [b"seen", SESSION], [head, bad_offsets(offsets, head), 1])


@for_each("verb", ["add", "remove", "contains", "claim", "commit"])
@for_each("offsets", BAD_OFFSETS)
def test_bad_counters(stored_counters: tuple[redis.Redis, bytes], verb: str, offsets: str) -> None:
    """Malformed numbers of counters are refused before one is touched."""
    client, head = stored_counters
    assert client.getrange("seen", 8, 10) == bytes([HASHES, 0, 4])
    keys = [b"seen", CLAIM] if verb in ("claim", "commit") else [b"seen"]
    rests: dict[str, list[Any]] = {"claim": [1000, OWNER], "commit": [OWNER]}
    refused(client, verb, keys, [head, bad_offsets(offsets, head), *rests.get(verb, [])])
    assert not client.exists(CLAIM)
    if verb in ("add", "remove"):
        refused(client, verb, [b"seen", SESSION], [head, bad_offsets(offsets, head), 1])


@for_each("layout", planning.NAMES)
def test_only_counters_are_lowered(server: Server, layout: Any) -> None:
    """Neither a filter of bits nor a bitmap allows removals."""
    with server.client() as client:
        BloomFilter(client, "seen", capacity=10_000, error_rate=1e-9, layout=layout).add("a")
        bitmap = b"bitmap" + bytes([1, 1, HASHES, 0, 4]) + bytes(5) + (32_768).to_bytes(8) + bytes(8)
        for identity in (client.getrange("seen", 0, 55), bitmap):
            refused(client, "remove", [b"seen"], [identity, u32(*range(HASHES))])


def test_counters_are_no_bits(stored_counters: tuple[redis.Redis, bytes]) -> None:
    """A segment of bits is not merged into counters."""
    client, head = stored_counters
    refused(client, "or_segment", [b"seen", b"{seen}:old", b"{seen}:new"], [head, 0, b"\xff"])


def packed(*blocks: int) -> bytes:
    return b"".join(u32(block) + b"\xff" * 32 for block in blocks)


BLOCKS = 3  # for an item, at this error rate
NUM_BLOCKS = planning.plan_layout("blocked", 10_000, 1e-9).num_bits // 256
BAD_BLOCKS = {
    "none": b"",
    "a byte": b"\0",
    "one block": packed(0),
    "offsets": u32(*range(30)),
    "a byte short": packed(0, 1, 2)[:-1],
    "a byte long": packed(0, 1, 2) + b"\0",
    "an item and a third": packed(0, 1, 2, 3),
    "out of range": packed(0, 1, 2**32 - 1),
    "just out of range": packed(0, 1, NUM_BLOCKS),
    "a later one out of range": packed(*range(300 - 1), 2**31),
    "too many": packed(*range(1026)),
    "far too many": packed(*range(NUM_BLOCKS)) * 10,
} | {f"{size} random bytes": RANDOM.randbytes(size) for size in (7, 36, 108, 3600, 10_800, 36_864)}


@for_each("verb", ["add", "contains", "claim", "commit"])
@for_each("blocks", BAD_BLOCKS)
def test_bad_blocks(stored_blocks: tuple[redis.Redis, bytes], verb: str, blocks: str) -> None:
    """Malformed blocks are refused before a bit is touched."""
    client, head = stored_blocks
    assert client.getrange("seen", 7, 9) == bytes([2, 27, BLOCKS])
    keys = [b"seen", CLAIM] if verb in ("claim", "commit") else [b"seen"]
    rests: dict[str, list[Any]] = {"claim": [1000, OWNER], "commit": [OWNER]}
    with pytest.raises(redis.ResponseError, match="BLOOMARGUMENT"):
        client.eval(text_of(verb, head), len(keys), *keys, head, BAD_BLOCKS[blocks], *rests.get(verb, []))
    refused(client, verb, keys, [head, BAD_BLOCKS[blocks], *rests.get(verb, [])])
    assert not client.exists(CLAIM)


@for_each("verb", ["add", "contains"])
def test_a_header_without_blocks(server: Server, verb: str) -> None:
    """Blocked headers without blocks per item, which no version wrote, are refused."""
    with server.client() as client:
        BloomFilter(client, "seen", capacity=10_000, error_rate=1e-9, layout="blocked").add("a")
        client.setrange("seen", 9, b"\0")
        refused(client, verb, [b"seen"], [client.getrange("seen", 0, 55), packed(0, 1, 2)])


@for_each("verb", ["add", "contains"])
def test_a_bitmap_has_no_blocks(server: Server, verb: str) -> None:
    """The description of another system's bitmap means offsets, whatever layout it names."""
    with server.client() as client:
        client.setrange("seen", 4096, b"\0")
        description = b"bitmap" + bytes([1, 2, 9, 1]) + bytes(6) + (32_768).to_bytes(8) + bytes(8)
        client.eval(text_of(verb, description), 1, b"seen", description, u32(*range(9)))
        assert client.bitcount("seen") == (9 if verb == "add" else 0)
        refused(client, verb, [b"seen"], [description, packed(0)[:35]])


@for_each("verb", ["add", "remove", "contains", "delete", "clear", "expire", "acknowledge"])
def test_bad_identities(stored: tuple[redis.Redis, bytes], verb: str) -> None:
    """A call with another identity than the filter's changes nothing."""
    client, head = stored
    last = {"add": u32(*range(HASHES)), "contains": u32(*range(HASHES)), "expire": 1000}
    last["remove"] = last["add"]
    template = head[:40] + bytes(24)
    for identity in BAD_IDENTITIES:
        refused(client, verb, [b"seen"], [identity, last.get(verb, template)])


@for_each(
    "verb", sorted(set(scripts.verbs()) - {"acknowledge", "describe", "describe_layers", "delete", "time"})
)
@for_each("missing", ["all", "but the first"])
def test_missing_arguments(stored: tuple[redis.Redis, bytes], verb: str, missing: str) -> None:
    """A call with too few arguments is refused."""
    client, head = stored
    refused(client, verb, [b"seen"], [] if missing == "all" else [head])


@for_each("verb", sorted(scripts.verbs()))
def test_missing_keys(stored: tuple[redis.Redis, bytes], verb: str) -> None:
    """A call without a key is refused."""
    client, head = stored
    refused(client, verb, [], [head, u32(*range(HASHES)), 1])


@for_each("verb", ["add", "remove"])
def test_a_receipt_without_a_number(stored_counters: tuple[redis.Redis, bytes], verb: str) -> None:
    """A session's call must have a number, and is refused before a bit is touched."""
    client, head = stored_counters
    refused(client, verb, [b"seen", SESSION], [head, u32(*range(HASHES))])


GOOD = u32(*range(HASHES))
BAD_CLAIMS: dict[str, tuple[str, list[bytes], list[Any]]] = {
    "no lease": ("claim", [CLAIM], [GOOD, b"", OWNER]),
    "a lease of nothing": ("claim", [CLAIM], [GOOD, 0, OWNER]),
    "half an owner": ("claim", [CLAIM], [GOOD, 1000, OWNER[:8]]),
    "an owner too many": ("claim", [CLAIM], [GOOD, 1000, OWNER * 2]),
    "a claim too few": ("claim", [], [GOOD, 1000, OWNER]),
    "a claim too many": ("claim", [CLAIM, CLAIM], [GOOD, 1000, OWNER]),
    "a commit of two": ("commit", [CLAIM], [GOOD * 2, OWNER]),
    "a commit by nobody": ("commit", [CLAIM], [GOOD, b""]),
    "a commit without a claim": ("commit", [], [GOOD, OWNER]),
    "a commit without a number": ("commit", [CLAIM, SESSION], [GOOD, OWNER]),
}


@for_each("kind", BAD_CLAIMS)
def test_bad_claims(stored: tuple[redis.Redis, bytes], kind: str) -> None:
    """A malformed call claims and commits nothing."""
    client, head = stored
    verb, keys, rest = BAD_CLAIMS[kind]
    refused(client, verb, [b"seen", *keys], [head, *rest])
    assert not client.exists(CLAIM)


def test_a_key_that_is_no_claim(stored: tuple[redis.Redis, bytes]) -> None:
    """A key that is not a claim, such as the filter itself, is busy and stays unchanged."""
    client, head = stored
    before = client.dump("seen")
    keys = [b"seen", b"seen"]
    assert client.eval(text_of("claim", head), 2, *keys, head, GOOD, 1000, OWNER) == b"b 0"
    assert client.eval(text_of("commit", head), 2, *keys, head, GOOD, OWNER) == 0
    assert client.dump("seen") == before


@for_each("value", [b"", b"x", bytes(15), bytes(25), RANDOM.randbytes(64)])
def test_bad_values_of_claims(stored: tuple[redis.Redis, bytes], value: bytes) -> None:
    """A malformed value neither drops nor extends a claim."""
    client, _ = stored
    refused(client, "release", [b"seen"], [value])
    refused(client, "extend", [b"seen"], [1000, value])


@for_each("verb", ["add", "remove"])
@for_each("index", [[], ["x"], [b""], [-2], [5000]])
def test_a_bad_index_in_an_earlier_call(
    stored_counters: tuple[redis.Redis, bytes], verb: str, index: list[Any]
) -> None:
    """An index that the earlier call does not have is refused, where no reply ends early."""
    client, head = stored_counters
    client.set(SESSION, "1:101", px=60_000)
    refused(client, verb, [b"seen", SESSION + b"/1/0", SESSION], [head, u32(*range(HASHES)), 1, 1, *index])


@for_each("ttl", ["x", "", "1e400", "-1"])
def test_a_bad_time_to_live(stored: tuple[redis.Redis, bytes], ttl: str) -> None:
    """A malformed time neither expires nor deletes the filter."""
    client, head = stored
    refused(client, "expire", [b"seen"], [head, ttl])


def bad_templates(head: bytes) -> dict[str, bytes]:
    """Headers that no filter can have, made from a valid one."""
    good = head + bytes(8)
    return {
        "empty": b"",
        "short": good[:-1],
        "long": good + b"\0",
        "random": RANDOM.randbytes(64),
        "no bits": good[:16] + bytes(8) + good[24:],
        "too many bits": good[:16] + b"\xff" * 8 + good[24:],
        "no hashes": good[:8] + b"\0" + good[9:],
        "too many counters": good[:10] + b"\4" + good[11:16] + (2**30).to_bytes(8) + good[24:],
    }


KINDS = list(bad_templates(bytes(56)))


@for_each("kind", KINDS)
def test_bad_templates_for_reserve(stored: tuple[redis.Redis, bytes], kind: str) -> None:
    """Nothing is created from a malformed header."""
    client, head = stored
    refused(client, "reserve", [b"other"], [bad_templates(head)[kind], 0])
    assert not client.exists("other")


@for_each("kind", KINDS)
def test_bad_templates_for_clear(stored: tuple[redis.Redis, bytes], kind: str) -> None:
    """A filter is not replaced by one with a malformed header."""
    client, head = stored
    template = bad_templates(head[:40] + b"another!" + head[48:])[kind]
    refused(client, "clear", [b"seen"], [head, template])


@for_each("ttl", [[], ["x"], ["1e400"], [-5]])
def test_a_bad_time_to_live_for_reserve(stored: tuple[redis.Redis, bytes], ttl: list[Any]) -> None:
    """Nothing is created with a malformed time to live."""
    client, head = stored
    with pytest.raises(redis.ResponseError):
        client.eval(text_of("reserve", head), 1, b"other", head + bytes(8), *ttl)
    assert not client.exists("other")


Call = tuple[str, list[bytes], list[Any]]


@pytest.fixture(params=["scaling", "rotating"])
def layers(request: pytest.FixtureRequest, server: Server) -> Iterator[tuple[redis.Redis, dict[str, Call]]]:
    """A client whose server has a filter of several layers, and valid calls of the scripts for layers."""
    with server.client() as client:
        f: Any = (
            ScalingBloomFilter(client, "seen", capacity=10, error_rate=1e-6)
            if request.param == "scaling"
            else RotatingBloomFilter(client, "seen", capacity=40, error_rate=1e-6, window=3600)
        )
        f.add_many(range(25))
        opened = inside(f).stored.handle
        record = inside(f).stored.record
        item, extra, first = opened.layout.pack_one(b"x"), list(opened.extra), [opened.identity]
        following = record.following()
        header = following.layer(following.newest).pack()
        keys = [opened.key, *extra[1:]]
        yield (
            client,
            {
                "add": ("add", [opened.key, *extra], [*first, item]),
                "contains": ("contains", [opened.key, *extra], [*first, item]),
                "claim": ("claim", [opened.key, CLAIM, *extra], [*first, item, 1000, OWNER]),
                "commit": ("commit", [opened.key, CLAIM, *extra], [*first, item, OWNER]),
                "delete": ("delete", [opened.key, *extra], first),
                "expire": ("expire", [opened.key, *extra], [*first, 1000]),
                "add_layer": (
                    "add_layer",
                    [b"seen", b"{seen}:layer:9", *keys],
                    [record.pack(), following.template(), header, 0],
                ),
            },
        )


def all_of_it(client: redis.Redis) -> dict[bytes, bytes | None]:
    return {key: client.dump(key) for key in client.scan_iter()}


def mutants(call: Call) -> Iterator[Call]:
    """Make malformed calls from a valid one."""
    verb, keys, values = call
    known, rest = values[0], values[1:]
    checked = 16 + int.from_bytes(known[8:16]) if verb in ("delete", "expire") else len(known)
    for at in [*range(8), 15, *RANDOM.sample(range(16, checked), 12)]:
        yield verb, keys, [known[:at] + bytes([known[at] ^ 0x5A]) + known[at + 1 :], *rest]
    for length in (0, 1, 15, 16, 17, 56, len(known) - 1):
        yield verb, keys, [known[:length], *rest]
    yield verb, keys, [known + b"\0", *rest]
    for count in range(len(keys)):
        yield verb, keys[:count], values
    if verb not in ("delete", "expire", "add_layer"):
        yield verb, [*keys[:-2], keys[-1], keys[-2]], values
        packed_item = rest[0]
        for wrong in (
            b"",
            packed_item[:-1],
            packed_item + b"\0",
            b"\xff" * len(packed_item),
            packed_item * 2000,
        ):
            yield verb, keys, [known, wrong, *rest[1:]]
    if verb == "add_layer":
        for at in range(1, 3):
            yield verb, keys, [known, *(b"x" if i == at else value for i, value in enumerate(values) if i)]
        yield verb, keys, [*values[:3], "soon"]


@pytest.mark.parametrize("verb", ["add", "contains", "claim", "commit", "delete", "expire", "add_layer"])
def test_malformed_calls_on_layers(layers: tuple[redis.Redis, dict[str, Call]], verb: str) -> None:
    """Each is refused or gets the unchanged layer record, and nothing changes."""
    client, calls = layers
    before = all_of_it(client)
    for mutant, keys, values in mutants(calls[verb]):
        text = text_of(mutant, calls[verb][2][0])
        try:
            reply = client.eval(text, len(keys), *keys, *values)
        except redis.ResponseError:
            reply = None
        assert reply is None or verb == "add_layer", (mutant, keys, values)
        assert all_of_it(client) == before
    _, keys, values = calls[verb]
    assert client.eval(text_of(verb, values[0]), len(keys), *keys, *values) is not None
