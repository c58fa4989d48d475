"""`bloomredis import` on real servers."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from bloomredis import BloomFilter, compat
from bloomredis.cli.importing import _load_set
from bloomredis.cli.members import Members
from tests.cli.test_many_lines import MEASURED
from tests.support.commands import COMMAND, ENVIRONMENT, printed, run_command
from tests.support.servers import Server, binaries, running

log = logging.getLogger(__name__)
MEMBERS = [f"{number:040x}" for number in range(30_000)]


def fill(client: redis.Redis) -> None:
    """Store the members as scrapy-redis does, and in a sorted set; and a small set, which is no table."""
    with client.pipeline(transaction=False) as pipe:
        for start in range(0, len(MEMBERS), 1000):
            pipe.sadd("spider:dupefilter", *MEMBERS[start : start + 1000])
            pipe.zadd("sorted", dict.fromkeys(MEMBERS[start : start + 1000], 1.5))
        pipe.sadd("small", 1, 2, 3)
        pipe.execute()


def test_sets_are_imported(client: redis.Redis) -> None:
    """A set, a sorted set and a small one, on every server."""
    fill(client)
    for key, members in {"spider:dupefilter": MEMBERS, "sorted": MEMBERS, "small": ["1", "2", "3"]}.items():
        f = BloomFilter(client, "seen", capacity=60_000, error_rate=1e-6)
        reading = Members(client, key, client, "seen")
        assert f.load(reading.items()) == len(members) == reading.count
        assert all(f.contains_many(members))
        f.delete()


def test_the_command_makes_a_filter_for_the_set(any_server: Server) -> None:
    """With room for twice as many; from another server, too, and into a filter that exists."""
    with any_server.client() as client, running(binaries()["redis-6.2"]) as away:
        fill(client)
        command = ("import", "new", "--from-set", "spider:dupefilter", "--url", away.url)
        report: Any = json.loads(printed(*command, "--from-url", any_server.url, "--json"))
        assert report == {"read": 30_000, "count": 30_000}
        with away.client() as target:
            f = BloomFilter.open(target, "new")
            assert f.info().capacity == 60_000
            assert all(f.contains_many(MEMBERS))
            assert target.keys("*import*") == []
        report = json.loads(printed(*command, "--from-url", any_server.url, "--json"))
        assert report == {"read": 30_000, "count": 30_000}


class CutOff(Exception):  # noqa: N818 - a test's own
    """The import ends here."""


def test_an_import_goes_on_where_it_was(any_client: redis.Redis) -> None:
    """What was noted as loaded is not read again, unless the cursor is that of another run of the server."""
    fill(any_client)
    f = BloomFilter(any_client, "seen", capacity=60_000, error_rate=1e-6)
    first = Members(any_client, "spider:dupefilter", any_client, "seen")
    with pytest.raises(CutOff):
        load_in_small_batches(f, first, 16_000)
    second = Members(any_client, "spider:dupefilter", any_client, "seen")
    rest = list(second.items())
    assert 0 < second.before <= 16_000
    assert len(rest) == 30_000 - second.before
    f.load(rest)
    assert all(f.contains_many(MEMBERS))
    note: Any = any_client.get(second._note_key)
    any_client.set(second._note_key, note.replace(note[:8], b"00000000"))
    assert len(list(Members(any_client, "spider:dupefilter", any_client, "seen").items())) == 30_000


def load_in_small_batches(f: Any, members: Members, until: int) -> None:
    """Load and note as a larger import does, and end after so many."""
    for done, item in enumerate(members.items(), 1):
        f.add(item)
        if done % 1000 == 0:
            members.note(done)
        if done == until:
            raise CutOff


@pytest.mark.faults
def test_a_set_of_a_million_is_imported_fast(any_client: redis.Redis) -> None:
    """At about half the speed of `load`, though the same server reads each member; the best of five turns.

    The bound is lower, since reading and loading share a core on a busy machine.
    """
    members = million(any_client)
    seconds: dict[str, list[float]] = {"load": [], "import": []}
    for _ in range(5):
        for way, taken in seconds.items():
            f = BloomFilter(any_client, "seen", capacity=2_000_000, error_rate=1e-6)
            f.reserve()
            begin = time.perf_counter()
            if way == "load":
                f.load(members)
            else:
                reading = Members(any_client, "set", any_client, "seen")
                assert _load_set(f, reading, restart=False) == 1_000_000
            taken.append(time.perf_counter() - begin)
            f.delete()
    log.info("seconds: %s", seconds)
    assert min(seconds["load"]) > 0.4 * min(seconds["import"])


@pytest.mark.faults
def test_a_set_of_a_million_is_imported_in_little_memory(any_server: Server, any_client: redis.Redis) -> None:
    """It takes no more than a set of a tenth of that."""
    million(any_client)
    any_client.sadd("tenth", *map(str, range(100_000)))
    peaks = {}
    for key in ("tenth", "set"):
        command = [sys.executable, "-c", MEASURED, *COMMAND, "import", f"from-{key}", "--from-set", key]
        run = [*command, "--capacity", "2000000", "--url", any_server.url]
        done = subprocess.run(run, capture_output=True, env=ENVIRONMENT, check=True)
        peaks[key] = int(done.stderr)
    log.info("KB of memory: %s", peaks)
    assert peaks["set"] < peaks["tenth"] + 16 * 1024


def million(client: redis.Redis) -> list[str]:
    """Store a set of a million fingerprints, and return them."""
    members = [f"{number:040x}" for number in range(1_000_000)]
    for start in range(0, len(members), 10_000):
        client.sadd("set", *members[start : start + 10_000])
    return members


def test_what_cannot_be_imported(any_server: Server) -> None:
    """One line, and status 2; status 3 where the server is not the right one."""
    with any_server.client() as client:
        client.hset("hash", "a", "b")
    url = ("--url", any_server.url)
    wrong: list[tuple[tuple[str, ...], bytes]] = [
        (("--from-set", "hash"), b"is a hash"),
        (("--from-set", "missing"), b"no key 'missing'"),
        ((), b"give one of"),
        (("--from-set", "hash", "--from-file", "-"), b"give one of"),
        (("--from-file", "-", "--from-url", any_server.url), b"--from-url is for"),
        (("--from-file", "-"), b"needs --capacity"),
    ]
    for options, message in wrong:
        done = run_command("import", "new", *options, *url)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr
        assert message in done.stderr
    with running(any_server.binary) as plain:
        done = run_command("import", "new", "--from-redisbloom", "x", *url, "--from-url", plain.url)
    assert (done.returncode, b"needs the module RedisBloom" in done.stderr) == (3, True)


def test_lines_of_a_file_are_imported(any_server: Server, tmp_path: Path) -> None:
    """Each line is an item."""
    (tmp_path / "items").write_text("a\nb\nb\n")
    url = ("--url", any_server.url)
    report = printed("import", "new", "--from-file", str(tmp_path / "items"), "--capacity", 1000, *url)
    assert report == b"read   3\ncount  2\n"
    assert printed("check", "new", "a", "b", "c", *url) == b"a\nb\n"


def test_a_filter_of_redisbloom_is_imported(any_server: Server, any_client: Any) -> None:
    """Straight from BF.SCANDUMP; the report has the layout that opens it."""
    if not any_server.options:
        pytest.skip("RedisBloom does not load here")
    any_client.execute_command("BF.RESERVE", "theirs", 0.01, 100)
    any_client.execute_command("BF.MADD", "theirs", "hello", *range(999))
    report = json.loads(
        printed("import", "new", "--from-redisbloom", "theirs", "--url", any_server.url, "--json")
    )
    names = vars(compat.redisbloom)
    layout = eval(report["layout"], names)  # noqa: S307 - our own
    assert all(BloomFilter(any_client, "new", layout=layout).contains_many(["hello", *range(999)]))
