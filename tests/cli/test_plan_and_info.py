"""`bloomredis plan` and `bloomredis info`."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime
from typing import Any

import pytest
import redis

import bloomredis as library
import bloomredis.compat
from bloomredis.cli.durations import seconds, shown
from bloomredis.cli.kinds import CLASSES
from bloomredis.stored.header import KINDS
from tests.support.commands import printed, run_command
from tests.support.servers import Server


def test_plan_is_the_formula() -> None:
    """The sizes are m = -n ln p / (ln 2)^2 and k = (m / n) ln 2, plus 64 bytes for the header."""
    text = printed("plan", "--capacity", 1_000_000, "--error-rate", 0.01, "--layout", "classic").decode()
    fields = dict(line.split(None, 1) for line in text.splitlines())
    bits = math.ceil(-1e6 * math.log(0.01) / math.log(2) ** 2)
    assert fields["num_bits"] == str(bits)
    assert fields["num_hashes"] == "7"
    assert fields["size_bytes"] == str(64 + math.ceil(bits / 8))
    assert fields["memory"] == "1.14 MiB"


def test_a_plan_in_a_word() -> None:
    """The capacity alone is enough; the error rate is then one in a thousand."""
    assert printed("plan", "1e6") == printed("plan", "--capacity", "1M", "--error-rate", "0.1%")
    assert run_command("plan", "1e6", "--capacity", "1e6").returncode == 2


def test_plan_of_a_sharded_filter() -> None:
    """For 50 billion bits and k = 16: 47 shards of 127 MiB, of which one of three nodes has 16."""
    capacity = round(50e9 * math.log(2) / 16)
    options = ["--capacity", capacity, "--error-rate", 2**-16, "--layout", "classic"]
    fields = json.loads(printed("plan", *options, "--nodes", 3, "--json"))
    assert (fields["shards"], fields["num_hashes"], fields["shards_per_node"]) == (47, 16, 16)
    assert fields["num_bits"] == pytest.approx(50e9, rel=1e-3)
    assert fields["bytes_per_node"] == 16 * fields["bytes_per_shard"]
    text = printed("plan", *options).decode()
    assert dict(line.split(None, 1) for line in text.splitlines())["memory_per_node"] == "5.82 GiB"


def test_plan_with_shards() -> None:
    """With --shards even a small filter is planned in shards."""
    options = ["--capacity", 1000, "--error-rate", 0.01, "--json"]
    assert json.loads(printed("plan", *options, "--shards", 5))["shards"] == 5
    assert json.loads(printed("plan", *options, "--nodes", 2))["shards_per_node"] == 8
    assert "shards" not in json.loads(printed("plan", *options))


@pytest.mark.parametrize(("rate", "most"), [(0.01, 4.9), (0.001, 3.7)])
def test_plan_of_a_scaling_filter(rate: float, most: float) -> None:
    """Just after its growth a scaling filter takes several times the memory of a fixed one, as in README."""
    options = ["--capacity", 1000, "--error-rate", rate, "--json", "--grown-to"]
    full = json.loads(printed("plan", *options, 1000 * (2**9 - 1)))
    grown = json.loads(printed("plan", *options, 1000 * (2**9 - 1) + 1))
    assert (full["layers"], grown["layers"]) == (9, 10)
    assert full["times_fixed"] < 2.5
    assert full["times_fixed"] < grown["times_fixed"] <= grown["most_times_fixed"] <= most
    assert grown["most_times_fixed"] > 0.9 * most


def test_plan_says_how_long_a_server_is_busy() -> None:
    """One command allocates a string; the plan counts 0.5 ms a megabyte, the slowest measured."""
    options = ["--capacity", 400_000_000, "--error-rate", 0.01, "--json"]
    assert 200 <= json.loads(printed("plan", *options))["busy_ms"] <= 256
    assert json.loads(printed("plan", *options, "--shards", 100))["busy_ms"] < 4
    assert json.loads(
        printed("plan", "--capacity", 9, "--error-rate", 1e-12, "--layout", "classic", "--json")
    )["expected_error_rate"] == pytest.approx(1e-9, rel=0.02)


OWN = {
    "RotatingBloomFilter": {"window": "1h", "slices": "4"},
    "ScalingBloomFilter": {"expansion": "2", "tightening_ratio": "0.5"},
    "ShardedBloomFilter": {"shards": "16"},
}
"""Fields that only filters of one class have."""


def known(client: redis.Redis, kind: str) -> Any:
    """Create a filter `known` of that class with ten items."""
    own: dict[str, Any] = {"window": 3600} if kind.startswith("Rotating") else {}
    made = getattr(library, kind)(client, "known", capacity=1000, error_rate=0.01, **own)
    made.add_many(range(10))
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_info(any_server: Server, kind: str) -> None:
    """`info` prints the class and every field of FilterInfo, one a line, for any class."""
    with any_server.client() as client:
        expected = known(client, kind).info()
    text = printed("info", "known", "--url", any_server.url).decode()
    fields = dict(line.split(None, 1) for line in text.splitlines())
    filled = ", ".join(f"{layer.count}/{layer.capacity}" for layer in expected.layers)
    layers = f"{len(expected.layers)}, holding {filled} items" if filled else "-"
    values = {name: getattr(expected, name) for name in expected.__dataclass_fields__}
    own = ("window", "slices", "expansion", "tightening_ratio", "shards")
    wanted = {name: str(value) for name, value in values.items() if value is not None or name not in own}
    short = {name: short.value for short, name in CLASSES.items()}
    wanted |= {"kind": short[kind], "layers": layers} | OWN.get(kind, {})
    if kind == "CountingBloomFilter":
        wanted["num_counters"] = wanted.pop("num_bits")
    assert fields.pop("ttl") == shown(expected.ttl)
    assert fields == {name: value for name, value in wanted.items() if name != "ttl"}


@pytest.mark.parametrize("kind", KINDS)
def test_info_as_json(any_server: Server, kind: str) -> None:
    """--json prints one object with the same fields; numbers are numbers, times ISO 8601, layers objects."""
    with any_server.client() as client:
        expected = known(client, kind).info()
    found = json.loads(printed("info", "known", "--url", any_server.url, "--json"))
    assert (found["class"], found["capacity"], found["count"]) == (kind, 1000, 10)
    assert datetime.fromisoformat(found["created_at"]) == expected.created_at
    assert [layer["count"] for layer in found["layers"]] == [layer.count for layer in expected.layers]


def test_info_of_a_bitmap_of_another_system(any_server: Server) -> None:
    """--layout supplies the parameters that the bitmap does not store."""
    layout = library.compat.go_zero(20_000)
    with any_server.client() as client:
        library.BloomFilter(client, "bits", layout=layout).add("x")
    found = json.loads(
        printed("info", "bits", "--url", any_server.url, "--layout", "go_zero:20000", "--json")
    )
    assert (found["layout"], found["num_bits"], found["count"]) == ("go_zero", 20_000, 1)
    text = printed("info", "bits", "--url", any_server.url, "--layout", "go_zero:20000").decode()
    assert re.findall(r"^(\w+) +-$", text, re.MULTILINE) == ["ttl", "generation", "created_at", "layers"]
    refused = run_command("info", "bits", "--url", any_server.url)
    assert refused.returncode == 2
    assert b"for a bitmap of another system, give its --layout" in refused.stderr


def test_durations() -> None:
    """A time is a number with a unit, and is printed in its two largest units."""
    assert [seconds(text) for text in ("90", "90s", "1.5m", "2h", "7d", "1w")] == [
        *(90, 90, 90, 7200, 604800, 604800)
    ]
    times = (None, 59.64, 90, 3600, 4146, 90061, 604800)
    assert [shown(time) for time in times] == ["-", "59.6s", "90s", "1h", "1h 9m", "1d 1h", "7d"]


def test_a_name_does_nothing_to_a_terminal(any_server: Server) -> None:
    """Every command prints control characters of a name as escape sequences."""
    evil, where = "a\x1b[31m\x07b\nname: other", ("--url", any_server.url)
    size = ("--capacity", "10", "--error-rate", "0.1")
    for command in (
        ("create", evil, *size),
        ("info", evil),
        ("watch", evil, "--once"),
        ("copy", evil, f"{evil} 2"),
    ):
        done = printed(*command, *where)
        assert b"\x1b" not in done, command
        assert b"\x07" not in done, command
        assert b"\nname: other" not in done, command
        assert rb"a\x1b[31m\x07b\nname: other" in done, command
