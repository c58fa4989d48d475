"""Filters shared with other systems, which are played here by their own commands to Redis.

A stand-in sends what the system sends; which bits, it takes from the vectors, made by running the system.
"""

from __future__ import annotations

import inspect
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import redis

from bloomredis import BatchInterruptedError, BloomFilter, FilterMismatchError, compat
from bloomredis.compat import from_guava, to_guava
from tests.compat.test_compat_vectors import element, vectors
from tests.support.racing import race_threads
from tests.support.servers import Server

Offsets = list[int]
SET = "for _, offset in ipairs(ARGV) do redis.call('setbit', KEYS[1], offset, 1) end"
GET = """
for _, offset in ipairs(ARGV) do
  if tonumber(redis.call('getbit', KEYS[1], offset)) == 0 then return false end
end
return true
"""
CHECK = """
local size = redis.call('hget', KEYS[1], 'size')
local hashIterations = redis.call('hget', KEYS[1], 'hashIterations')
assert(size == ARGV[1] and hashIterations == ARGV[2], 'Bloom filter config has been changed')
"""


class InLua:
    """go-zero and the RedisTemplate filter: one script with an argument for each offset."""

    def __init__(self, key: str) -> None:
        self.key = key

    def put(self, client: Any, offsets: Offsets) -> None:
        client.eval(SET, 1, self.key, *offsets)

    def has(self, client: Any, offsets: Offsets) -> bool:
        return bool(client.eval(GET, 1, self.key, *offsets))


class InPipeline:
    """The Java class over Jedis and the PHP class: a SETBIT for each offset in a pipeline."""

    def __init__(self, key: str, ttl: int = 0) -> None:
        self.key = key
        self.ttl = ttl

    def put(self, client: Any, offsets: Offsets) -> None:
        pipe = client.pipeline(transaction=False)
        for offset in offsets:
            pipe.setbit(self.key, offset, 1)
        if self.ttl:
            pipe.expire(self.key, self.ttl)
        pipe.execute()

    def has(self, client: Any, offsets: Offsets) -> bool:
        pipe = client.pipeline(transaction=False)
        for offset in offsets:
            pipe.getbit(self.key, offset)
        return all(pipe.execute())


class LikeRedisson(InPipeline):
    """Redisson: its config is checked in the same batch."""

    def __init__(self, key: str, config: dict[str, str]) -> None:
        super().__init__(key)
        self.config = config

    def put(self, client: Any, offsets: Offsets) -> None:
        name = f"{{{self.key}}}:config"
        if not client.exists(name):
            client.hset(name, mapping=self.config)
        client.eval(CHECK, 1, name, self.config["size"], self.config["hashIterations"])
        super().put(client, offsets)

    def has(self, client: Any, offsets: Offsets) -> bool:
        name = f"{{{self.key}}}:config"
        client.eval(CHECK, 1, name, self.config["size"], self.config["hashIterations"])
        return super().has(client, offsets)


@dataclass
class System:
    """A system: its vectors, the parameters of those that are used, our layout, and its stand-in."""

    vectors: str
    parameters: dict[str, Any]
    layout: Callable[[], Any]
    stand_in: Any

    def cases(self) -> list[tuple[Any, Offsets]]:
        found = [
            (element(case), case["offsets"])
            for case in vectors(self.vectors)["cases"]
            if all(case[field] == value for field, value in self.parameters.items())
        ]
        assert len(found) > 20
        return found


JAVA = {"capacity": 10_000, "error_rate": 0.001}
SYSTEMS = {
    "go_zero": System("go_zero", {"num_bits": 60_000_000}, lambda: compat.go_zero(60_000_000), InLua("seen")),
    "jedis": System("jedis", JAVA, lambda: compat.jedis(10_000, 0.001), InPipeline("bf:seen", ttl=1000)),
    "redis_template": System(
        "redis_template", JAVA, lambda: compat.redis_template(10_000, 0.001), InLua("seen")
    ),
    "php_bkdr": System(
        "php_bkdr", {"num_bits": 35_000_000}, lambda: compat.php_bkdr(35_000_000, 16), InPipeline("seen")
    ),
    "redisson": System(
        "redisson",
        {"capacity": 3000, "error_rate": 0.03},
        lambda: compat.redisson(3000, 0.03),
        LikeRedisson(
            "seen",
            {
                "size": "21895",
                "hashIterations": "5",
                "expectedInsertions": "3000",
                "falseProbability": "0.03",
            },
        ),
    ),
}


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> System:
    """Each system in turn."""
    return SYSTEMS[request.param]


def test_what_the_system_wrote_is_read(bloom: Any, client: redis.Redis, system: System) -> None:
    """One by one and in batches; what it did not write is new."""
    cases = system.cases()
    theirs, ours = cases[::2], cases[1::2]
    for _, offsets in theirs:
        system.stand_in.put(client, offsets)
    f = bloom(client, "seen", layout=system.layout())
    assert f.contains_many([item for item, _ in theirs]) == [True] * len(theirs)
    assert all(f.contains(item) for item, _ in theirs)
    assert not any(f.add_many([item for item, _ in theirs]))
    expected = [system.stand_in.has(client, offsets) for _, offsets in ours]
    assert f.contains_many([item for item, _ in ours]) == expected
    assert not all(expected)


def test_the_system_reads_what_was_written(bloom: Any, client: redis.Redis, system: System) -> None:
    """By add, add_many, a claim, a pipeline of the caller's, and load."""
    cases = system.cases()
    f = bloom(client, "seen", layout=system.layout())
    items = [item for item, _ in cases]
    f.add(items[0])
    f.add_many(items[1:8])
    claim = f.claim(items[8])
    bloom.wait(claim.commit())
    f.load(items[9:15])
    for item, offsets in cases[:15]:
        assert system.stand_in.has(client, offsets), item
    f.add_many(items)
    assert all(system.stand_in.has(client, offsets) for _, offsets in cases)
    expected = {offset for _, offsets in cases for offset in offsets}
    assert client.bitcount(system.stand_in.key) == len(expected)


def test_a_pipeline_of_the_callers(server: Server, system: System) -> None:
    """It puts 1 or 0 in its place, and the system reads what it wrote."""
    with server.client() as client:
        (first, one), (second, two), *_ = system.cases()
        f = BloomFilter(client, "seen", layout=system.layout())
        pipe = client.pipeline()
        f.queue_add(pipe, first)
        f.queue_add(pipe, first)
        f.queue_contains(pipe, second)
        assert pipe.execute() == [1, 0, 0]
        assert system.stand_in.has(client, one)
        assert not system.stand_in.has(client, two)


def test_one_of_many_is_told_that_an_item_is_new(server: Server, system: System) -> None:
    """However many threads add it at once."""
    items = list(dict.fromkeys(item for item, _ in system.cases()))

    def work(_: int) -> list[bool]:
        f = BloomFilter(server.client(), "seen", layout=system.layout())
        return [f.add(item) for item in items]

    wins = Counter(sum(answers) for answers in zip(*race_threads(work, 6), strict=True))
    assert wins[1] == wins.total() - wins[0]
    assert wins[0] <= len(items) // 10  # equal once encoded, or in error


def test_info_and_the_rest(bloom: Any, client: redis.Redis, system: System) -> None:
    """What is known without a header is told; expire, clear and delete act on all that there is."""
    layout = system.layout()
    f = bloom(client, "seen", layout=layout)
    f.reserve()
    assert (f.info().count, f.info().created_at, f.info().generation) == (0, None, "")
    f.add_many([f"item-{i}" for i in range(300)])
    info = f.info()
    assert (info.layout, info.num_bits, info.num_hashes) == (layout.name, layout.num_bits, layout.num_hashes)
    assert info.count == f.approximate_count() == pytest.approx(300, rel=0.1)
    assert f.snapshot().contains("item-0")
    f.expire(100)
    assert all(client.pttl(key) > 90_000 for key in client.keys("*") if b":receipt:" not in key)
    f.clear()
    assert not f.contains("item-0")
    f.add("item-0")
    assert f.delete()
    assert not f.delete()
    assert not [key for key in client.keys("*") if b":receipt:" not in key]


def test_a_key_of_another_type_is_refused(bloom: Any, client: redis.Redis, system: System) -> None:
    """At the first use, and it is left as it is."""
    client.rpush(system.stand_in.key, "x")
    f = bloom(client, "seen", layout=system.layout())
    for call in (lambda: f.add("a"), lambda: f.contains("a"), f.info, f.delete):
        with pytest.raises(FilterMismatchError):
            call()
    assert client.lrange(system.stand_in.key, 0, -1) == [b"x"]


def test_each_insert_renews_the_ttl(bloom: Any, client: redis.Redis) -> None:
    """With refresh_ttl, of an item that is there too; without, it counts from creation."""
    layout = compat.jedis(10_000, 0.001)
    f = bloom(client, "seen", layout=layout, ttl=100, refresh_ttl=True)
    g = bloom(client, "fixed", layout=layout, ttl=100)
    for each, key in ((f, "bf:seen"), (g, "bf:fixed")):
        each.add("a")
        assert 99_000 < client.pttl(key) <= 100_000
        client.pexpire(key, 50_000)
        each.contains("a")
        assert client.pttl(key) <= 50_000
        each.add("a")
    assert client.pttl("bf:seen") > 99_000
    g.add("b")
    assert client.pttl("bf:fixed") <= 50_000


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"refresh_ttl": True}, "ttl is missing"),
        ({"on_lost": "recreate"}, "on_lost"),
        ({"capacity": 5}, "capacity 1000, not 5"),
        ({"error_rate": 0.5}, "error_rate 0.01, not 0.5"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], wrong: str) -> None:
    """Before any I/O."""
    with pytest.raises(ValueError, match=wrong):
        BloomFilter(redis.Redis(), "f", layout=compat.jedis(1000, 0.01), **options)


def test_native_filters_take_no_refresh_ttl() -> None:
    """The error names the way out."""
    with pytest.raises(ValueError, match=r"expire\(\)"):
        BloomFilter(redis.Redis(), "f", capacity=10, error_rate=0.1, ttl=10, refresh_ttl=True)


@pytest.mark.parametrize("layout", [5, 1.5, object(), compat])
def test_a_bad_layout_is_refused(layout: Any) -> None:
    """With the value seen."""
    with pytest.raises(TypeError, match=r"bloomredis\.compat, not"):
        BloomFilter(redis.Redis(), "f", layout=layout)


def test_redissons_config_is_created(bloom: Any, client: redis.Redis) -> None:
    """As tryInit writes it, and only if it is missing."""
    bloom(client, "seen", layout=compat.redisson(3000, 0.03)).add("a")
    config = client.hgetall("{seen}:config")
    assert config == {
        b"size": b"21895",
        b"hashIterations": b"5",
        b"expectedInsertions": b"3000",
        b"falseProbability": b"0.03",
    }
    client.hset("{seen}:config", "expectedInsertions", "2999")
    bloom(client, "seen", layout=compat.redisson(3000, 0.03)).add("b")
    assert client.hget("{seen}:config", "expectedInsertions") == b"2999"


def test_another_config_of_redissons_is_refused(bloom: Any, client: redis.Redis) -> None:
    """The error gives both, and no bit is set."""
    client.hset("{seen}:config", mapping={"size": "7", "hashIterations": "5"})
    f = bloom(client, "seen", layout=compat.redisson(3000, 0.03))
    with pytest.raises(FilterMismatchError, match="size 7, not 21895"):
        f.add("a")
    with pytest.raises(FilterMismatchError):
        f.add("a")
    assert not client.exists("seen")


def stream(system: str, **parameters: Any) -> tuple[bytes, list[Any]]:
    """Return what Guava writes of a filter with every second case, and the items of all."""
    cases = [
        case
        for case in vectors(system)["cases"]
        if all(case[field] == value for field, value in parameters.items())
    ]
    words = [0] * (cases[0]["num_bits"] // 64)
    for case in cases[::2]:
        for index in case["offsets"]:
            words[index >> 6] |= 1 << (index & 63)
    head = struct.pack(">bBi", vectors(system)["strategy_ordinal"], cases[0]["num_hashes"], len(words))
    return head + struct.pack(f">{len(words)}Q", *words), [element(case) for case in cases]


@pytest.mark.parametrize("system", ["guava_mitz32", "guava_mitz64"])
def test_guavas_bytes_come_in_and_go_out(bloom: Any, client: redis.Redis, system: str) -> None:
    """What Guava wrote is a filter here, and comes back byte for byte; with more items Guava reads them."""
    data, items = stream(system, capacity=3000, error_rate=0.03)
    made = from_guava(client, "seen", data)
    assert all(made.contains_many(items[::2]))
    assert to_guava(made) == data
    layout = compat.guava(3000, 0.03, strategy=made._operations.layout.strategy)
    f = bloom(client, "seen", layout=layout)
    assert f.contains(items[0])
    f.add_many(items)
    before = dict.fromkeys(offset for case in vectors(system)["cases"] for offset in case["offsets"])
    assert before
    assert all(from_guava(client, "again", to_guava(made)).contains_many(items))


def test_guavas_bytes_overwrite_nothing(client: redis.Redis) -> None:
    """A key that is taken stays as it is, and nothing is left behind."""
    client.set("seen", "x")
    with pytest.raises(FilterMismatchError, match="exists already"):
        from_guava(client, "seen", stream("guava_mitz64", capacity=3000, error_rate=0.03)[0])
    assert client.keys("*") == [b"seen"]
    assert client.get("seen") == b"x"


def test_guavas_bytes_over_asyncio(server: Server) -> None:
    """With an asyncio client both functions are awaited."""
    import asyncio

    import redis.asyncio

    data, items = stream("guava_mitz64", capacity=3000, error_rate=0.03)

    async def main() -> None:
        async with redis.asyncio.Redis(unix_socket_path=server.socket) as client:
            f = await from_guava(client, "seen", data)
            assert all(await f.contains_many(items[::2]))
            assert await to_guava(f) == data

    asyncio.run(main())


def test_only_guavas_filters_go_out_to_guava() -> None:
    """Another layout is a TypeError."""
    with pytest.raises(TypeError, match="layout=guava"):
        to_guava(BloomFilter(redis.Redis(), "f", layout=compat.go_zero(100)))


def test_every_layout_is_documented() -> None:
    """Nothing public is without a docstring."""
    for name in compat.__all__:
        assert inspect.getdoc(getattr(compat, name))


# -- the chain of growing bitmaps


class Chain:
    """The Java chain: the newest bitmap is written, and followed by another when it is half full."""

    def put(self, client: Any, offsets: Offsets, num_bits: int) -> bool:
        if self.has(client, offsets):
            return False
        cursor = int(client.get("cursor") or 0)
        if client.bitcount(f"bloomfilter-{cursor}") > num_bits / 2:
            cursor = client.incr("cursor")
        for offset in offsets:
            client.setbit(f"bloomfilter-{cursor}", offset, 1)
        return True

    def has(self, client: Any, offsets: Offsets) -> bool:
        cursor = int(client.get("cursor") or 0)
        return any(
            all(client.getbit(f"bloomfilter-{link}", offset) for offset in offsets)
            for link in range(cursor + 1)
        )


CHAIN = compat.redis_bitmaps(1000, 0.01)
MANY = [f"item-{i}" for i in range(5000)]


def links(client: Any) -> dict[bytes, int]:
    """Return how many bits each bitmap of the chain has."""
    keys = sorted(key for key in client.keys("bloomfilter-*") if b":receipt:" not in key)
    return {key: client.bitcount(key) for key in keys}


def test_a_chain_is_shared(bloom: Any, client: Any) -> None:
    """In turns the system and we add, past several bitmaps: each reads what the other wrote."""
    f, theirs = bloom(client, "bloomfilter", layout=CHAIN), Chain()
    for start in range(0, 2400, 200):
        for item in MANY[start : start + 100]:
            theirs.put(client, CHAIN.offsets(item), CHAIN.num_bits)
        f.add_many(MANY[start + 100 : start + 200])
    assert int(client.get("cursor")) >= 1
    assert all(f.contains_many(MANY[:2400]))
    assert all(theirs.has(client, CHAIN.offsets(item)) for item in MANY[:2400])


def test_a_chain_grows_as_the_systems_does(client: redis.Redis) -> None:
    """The same items in the same order end in the same bitmaps, one by one and in batches."""
    theirs = Chain()
    for item in MANY[:3000]:
        theirs.put(client, CHAIN.offsets(item), CHAIN.num_bits)
    expected = links(client), client.get("cursor")
    assert len(expected[0]) > 1
    for size in (1, 700):
        client.flushall()
        f = BloomFilter(client, "bloomfilter", layout=CHAIN)
        for start in range(0, 3000, size):
            f.add_many(MANY[start : min(start + size, 3000)])
        assert (links(client), client.get("cursor")) == expected


def test_a_chain_has_one_winner_for_each_item(server: Server) -> None:
    """However many writers reach the limit at once; no bitmap is skipped or begun twice."""

    def work(worker: int) -> list[bool]:
        f = BloomFilter(server.client(), "bloomfilter", layout=CHAIN)
        if worker % 2:
            return [f.add(item) for item in MANY]
        return [
            answer for start in range(0, len(MANY), 250) for answer in f.add_many(MANY[start : start + 250])
        ]

    told = race_threads(work, 4)
    assert Counter(sum(answers) for answers in zip(*told, strict=True))[1] > 0.97 * len(MANY)
    assert max(sum(answers) for answers in zip(*told, strict=True)) == 1
    with server.client() as client:
        sizes = list(links(client).values())
        assert int(client.get("cursor")) == len(sizes) - 1
        assert all(CHAIN.num_bits / 2 < size <= CHAIN.num_bits / 2 + CHAIN.num_hashes for size in sizes[:-1])


def test_a_bitmap_of_the_chain_is_full_past_one_half(client: redis.Redis) -> None:
    """Half of the bits are not more than half."""
    client.set("bloomfilter-0", b"\xff" * (CHAIN.num_bits // 16))
    f = BloomFilter(client, "bloomfilter", layout=CHAIN)
    assert f.add_many(["first"]) == [True]
    assert not client.exists("cursor")
    assert f.add_many(["second"]) == [True]
    assert client.get("cursor") == b"1"


def test_a_load_into_a_chain_grows_it(bloom: Any, client: redis.Redis) -> None:
    """A batch that would be dense in one bitmap goes probe by probe; no copy is taken of several."""
    f = bloom(client, "bloomfilter", layout=CHAIN)
    assert f.load(MANY) == len(MANY)
    assert all(f.contains_many(MANY))
    assert len(links(client)) > 2
    with pytest.raises(TypeError, match="several bitmaps"):
        f.snapshot()


@pytest.mark.parametrize("layout", [CHAIN, compat.php_bkdr(1000, 3, partitions=2)])
def test_no_local_cache_of_several_bitmaps(layout: Any) -> None:
    """Bits of different bitmaps, taken together, would call absent items present."""
    with pytest.raises(ValueError, match="in several"):
        BloomFilter(redis.Redis(), "f", layout=layout, local_cache=True)


def test_claims_and_pipelines_on_a_chain(bloom: Any, client: redis.Redis) -> None:
    """A commit lets it grow, with a claim from before; info and delete act on all bitmaps."""
    f, other = (bloom(client, "bloomfilter", layout=CHAIN) for _ in range(2))
    early = f.claim("early")
    other.add_many(MANY[:2500])
    bloom.wait(early.commit())
    assert other.contains("early")
    info = f.info()
    assert info.count == pytest.approx(2501, rel=0.03)
    assert info.num_bits == CHAIN.num_bits * len(links(client))
    f.expire(100)
    assert client.pttl("cursor") > 90_000
    assert f.delete()
    assert not f.delete()
    assert not client.exists("cursor", *links(client))
    assert f.add("early")


# -- filters that were restored from RedisBloom


def dump(*, items: int, links: list[tuple[dict[str, Any], list[Offsets]]]) -> list[tuple[int, bytes]]:
    """Return what BF.SCANDUMP replies of links with these items."""
    head, data = struct.pack("<QIII", items, len(links), 5, 2), b""
    for case, offsets in links:
        bits = bytearray(case["num_bits"] // 8)
        for offset in (offset for each in offsets for offset in each):
            bits[offset >> 3] |= 1 << (offset & 7)
        head += struct.pack(
            "<QQQddIQB",
            *(len(bits), case["num_bits"], len(offsets), case["error_rate"], 9.6, case["num_hashes"]),
            *(case["capacity"], case["n2"]),
        )
        data += bits
    return [(1, head), (1 + len(data), data), (0, b"")]


def test_a_redisbloom_filter_is_restored(bloom: Any, client: redis.Redis) -> None:
    """Of one link or of several it answers the same, one by one and in batches; and it is only read."""
    groups = [
        [
            case
            for case in vectors("redisbloom")["cases"]
            if (case["capacity"], case["num_bits"], case["hash"]) == (capacity, bits, "MurmurHash64A")
        ]
        for capacity, bits in ((1000, 9600), (3000, 21952))
    ]
    for number, used in enumerate((groups[:1], groups)):
        name = f"restored-{number}"
        written = [group[::2] for group in used]
        f = compat.from_redisbloom(
            client,
            name,
            dump(
                items=sum(map(len, written)),
                links=[(group[0], [case["offsets"] for case in group]) for group in written],
            ),
        )
        assert all(f.contains_many([element(case) for group in written for case in group]))
        assert all(f.contains(element(case)) for group in written for case in group)
        absent = [f"absent-{i}" for i in range(500)]
        assert sum(f.contains_many(absent)) < 30
        assert f.contains_many(absent) == [f.contains(item) for item in absent]
        g = bloom(client, name, layout=f._operations.layout)
        assert g.contains(element(written[0][0]))
        assert g.info().count > 10
        for call, argument in ((f.add, "x"), (f.add_many, ["x"]), (f.claim, "x")):
            with pytest.raises(TypeError, match="only read"):
                call(argument)
        with pytest.raises(FilterMismatchError):
            compat.from_redisbloom(client, name, dump(items=1, links=[(used[0][0], [used[0][0]["offsets"]])]))
        assert g.delete()
    assert not client.keys("restored*")
    client.flushall()
    client.set("taken", "x")
    two = [(group[0], [group[0]["offsets"]]) for group in groups]
    with pytest.raises(FilterMismatchError):
        compat.from_redisbloom(client, "taken", dump(items=2, links=two))
    assert client.get("taken") == b"x"
    assert not client.keys("*link*:[0-9]")


# -- PHP's shards


PARTITIONED = [
    (element(case), case["offsets"], case["key_suffix"])
    for case in vectors("php_bkdr")["extra_v3_partitioned"]
    if max(case["offsets"]) < 1 << 24  # longer items take 256 MB a key
]


def test_phps_partitions_are_shared(bloom: Any, client: redis.Redis) -> None:
    """Each item is in the key that PHP keeps it in; what PHP wrote is found, in batches too."""
    layout = compat.php_bkdr(50_000_000_000, 16, servers=["only"])
    assert len({suffix for _, _, suffix in PARTITIONED}) > 1
    theirs, ours = PARTITIONED[::2], PARTITIONED[1::2]
    for _, offsets, suffix in theirs:
        InPipeline("seen" + suffix).put(client, offsets)
    f = bloom(client, "seen", layout=layout)
    assert all(f.contains_many([item for item, _, _ in theirs]))
    assert not any(f.add_many([item for item, _, _ in theirs]))
    assert any(f.add_many([item for item, _, _ in ours]))
    assert not any(f.add(item) for item, _, _ in ours)
    assert all(InPipeline("seen" + suffix).has(client, offsets) for _, offsets, suffix in PARTITIONED)


def test_all_calls_work_over_partitions(bloom: Any, client: redis.Redis) -> None:
    """Load, claims, pipelines, info, expire, clear and delete act on all keys."""
    layout = compat.php_bkdr(100_003, 8, partitions=5)
    f = bloom(client, "seen", layout=layout)
    assert f.load([f"loaded-{i}" for i in range(50)]) == 50
    claim = f.claim("claimed")
    bloom.wait(claim.commit())
    assert f.contains_many(["claimed", "loaded-7", "neither"]) == [True, True, False]
    assert [bool(claim) for claim in f.claim_many(["x", "y", "x"])] == [True, True, False]
    assert f.info().count == pytest.approx(51, abs=8)
    f.expire(100)
    assert client.pttl("seen.3") > 90_000
    f.clear()
    assert not f.contains("claimed")
    assert f.add("a")
    assert f.delete()
    assert not f.delete()


def test_phps_servers_share_the_items(bloom: Any, client: redis.Redis) -> None:
    """A list of clients is taken in the order of the servers; the checksum chooses."""
    second = bloom_twin(client)
    layout = compat.php_bkdr(1_000_003, 8, servers=["first", "second"], partitions=3)
    f = BloomFilter([client, second], "seen", layout=layout)  # type: ignore[arg-type]  # several clients
    items = [f"item-{i}" for i in range(60)]
    assert f.add_many([*items, items[0]]) == [True] * 60 + [False]
    for item in items:
        server, suffix = layout.partition(item.encode())
        one = (client, second)[server]
        assert InPipeline("seen" + suffix).has(one, layout.offsets(item))
    assert client.dbsize() > 3
    assert second.dbsize() > 3


def bloom_twin(client: redis.Redis) -> redis.Redis:
    """Return a client of another database of the same server, which stands for a second server."""
    import fakeredis

    other: redis.Redis
    if isinstance(client, fakeredis.FakeRedis):
        other = fakeredis.FakeRedis(server=fakeredis.FakeServer())
    else:
        other = redis.Redis(unix_socket_path=client.connection_pool.connection_kwargs["path"], db=1)
    other.flushdb()
    return other


def test_an_interrupted_batch_over_shards_loses_no_answer(client: redis.Redis) -> None:
    """What other shards had answered is told when the rest is asked about again."""
    second = bloom_twin(client)
    layout = compat.php_bkdr(1_000_000, 8, servers=["first", "second"], partitions=2)
    f = BloomFilter([client, second], "seen", layout=layout)  # type: ignore[arg-type]  # several clients
    items = [f"item-{i}" for i in range(40)]
    second.rpush("seen.1", "x")
    with pytest.raises(BatchInterruptedError) as caught:
        f.add_many(items)
    second.delete("seen.1")
    told = [*caught.value.results, *f.add_many(caught.value.rest)]
    assert told == [True] * 40
    assert f.add_many(items) == [False] * 40


def test_the_number_of_clients_has_to_fit() -> None:
    """One for each server, and one alone for one."""
    layout = compat.php_bkdr(1_000_000, 8, servers=["first", "second"])
    for clients in (redis.Redis(), [redis.Redis()], [redis.Redis()] * 3):
        with pytest.raises(ValueError, match="2 servers"):
            BloomFilter(clients, "f", layout=layout)  # type: ignore[arg-type]  # that is the point
