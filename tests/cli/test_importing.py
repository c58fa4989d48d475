"""`bloomredis import` on real servers."""

from __future__ import annotations

import fcntl
import json
import logging
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from bloomredis import BloomError, BloomFilter, compat
from bloomredis.cli.importing import _load_set
from bloomredis.cli.members import Members
from tests.cli.test_many_lines import MEASURED
from tests.support.commands import COMMAND, ENVIRONMENT, printed, run_command, started
from tests.support.servers import Server, binaries, running
from tests.support.values import for_each
from tests.support.waiting import PATIENCE, wait_until

log = logging.getLogger(__name__)
SIZE: dict[str, Any] = {"capacity": 60_000, "error_rate": 1e-6}
MEMBERS = [f"{number:040x}" for number in range(30_000)]


def fill(client: redis.Redis) -> None:
    """Store the members as scrapy-redis does and in a sorted set, and a small set that is no hash table."""
    with client.pipeline(transaction=False) as pipe:
        for start in range(0, len(MEMBERS), 1000):
            pipe.sadd("spider:dupefilter", *MEMBERS[start : start + 1000])
            pipe.zadd("sorted", dict.fromkeys(MEMBERS[start : start + 1000], 1.5))
        pipe.sadd("small", 1, 2, 3)
        pipe.execute()


def test_sets_are_imported(client: redis.Redis) -> None:
    """A set, a sorted set and a small set are imported, on every server."""
    fill(client)
    for key, members in {"spider:dupefilter": MEMBERS, "sorted": MEMBERS, "small": ["1", "2", "3"]}.items():
        f = BloomFilter(client, "seen", capacity=60_000, error_rate=1e-6)
        f.create()
        found = reading(client, f, key)
        assert _load_set(f, found, restart=False) == len(members) == found.count
        assert all(f.contains_many(members))
        f.delete()


def test_the_command_makes_a_filter_for_the_set(any_server: Server) -> None:
    """The new filter has room for twice the set, even from another server; an existing filter is used."""
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


def test_an_import_goes_on_where_it_was(any_client: redis.Redis) -> None:
    """An interrupted import continues: members noted as loaded are not read again."""
    fill(any_client)
    f = interrupted(any_client)
    second = reading(any_client, f)
    rest = list(second.items())
    assert 0 < second.before <= 16_000
    assert len(rest) == 30_000 - second.before
    f.update(rest)
    assert all(f.contains_many(MEMBERS))
    second.check()
    second.forget()
    assert any_client.keys("*import*") == []


@pytest.mark.parametrize("change", ["delete", "clear", "unlink"])
def test_a_note_is_of_no_use_to_another_filter(any_client: redis.Redis, change: str) -> None:
    """If the filter is deleted or cleared after an interruption, the next import loads all members."""
    fill(any_client)
    f = interrupted(any_client)
    any_client.unlink("seen") if change == "unlink" else getattr(f, change)()
    f = BloomFilter(any_client, "seen", **SIZE)
    f.create()
    assert _load_set(f, reading(any_client, f), restart=False) == 30_000
    assert all(f.contains_many(MEMBERS))


def test_a_note_is_of_one_set(any_server: Server, any_client: redis.Redis) -> None:
    """A note is not used for a set of that name in another database, on another server, in another run."""
    fill(any_client)
    f = interrupted(any_client)
    with any_server.client(db=1) as second, running(any_server.binary) as away, away.client() as third:
        for source in (second, third):
            fill(source)
            members = Members(source, "spider:dupefilter")
            members.go_on(any_client, "seen", f.info().generation)
            assert len(list(members.items())) == 30_000
            assert members.before == 0


def test_a_note_is_kept_for_a_day(any_client: redis.Redis) -> None:
    """After that the import starts at the beginning."""
    fill(any_client)
    interrupted(any_client)
    (note,) = any_client.keys("*import*")
    assert 86_300 < any_client.ttl(note) <= 86_400


def test_imports_that_never_continue(any_server: Server, any_client: redis.Redis) -> None:
    """Those into a bitmap of another system, and those of a user who may not run INFO."""
    fill(any_client)
    bitmap = BloomFilter(any_client, "bits", layout=compat.go_zero(2_000_000))
    any_client.acl_setuser("blind", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-info"])
    blind = any_server.client(username="blind", password="")
    seen = BloomFilter(any_client, "seen", **SIZE)
    seen.create()
    for source, found in ((any_client, bitmap), (blind, seen)):
        members = Members(source, "spider:dupefilter")
        members.go_on(any_client, found.name, found.info().generation)
        found.update(islice(members.items(), 20_000), progress=members.note)
        assert any_client.keys("*import*") == []
    any_client.acl_deluser("blind")
    blind.close()


class Disturbed(Members):
    """A set that something disturbs while it is read."""

    disturb: Callable[[], object]

    def items(self) -> Iterator[bytes]:
        """Yield the members."""
        for number, item in enumerate(super().items()):
            if number == 100:
                self.disturb()
            yield item


@for_each("key", ["spider:dupefilter", "sorted"])
@for_each("change", ["delete", "replace", "restart"])
def test_a_set_that_was_not_there_to_the_end(key: str, change: str) -> None:
    """If the set is disturbed during the import, the import fails without a note; the next one succeeds."""
    patient = {"retry": Retry(ConstantBackoff(0.05), 200), "retry_on_error": [redis.ConnectionError]}
    with (
        running(binaries()["redis-6.2"], "--appendonly", "yes") as source,
        source.client(**patient) as client,  # the next members are being read as the server restarts
    ):
        fill(client)
        client.sadd("others", *range(20_000))
        client.zadd("others-sorted", dict.fromkeys(range(20_000), 1))
        f = BloomFilter(client, "seen", **SIZE)
        f.create()
        members = Disturbed(client, key)
        members.go_on(client, "seen", f.info().generation)

        def restart() -> None:
            source.stop(signal.SIGTERM)
            source.start()

        others = "others-sorted" if key == "sorted" else "others"
        members.disturb = {
            "delete": lambda: client.delete(key),
            "replace": lambda: client.rename(others, key),
            "restart": restart,
        }[change]
        with pytest.raises(BloomError, match="restarted" if change == "restart" else "deleted or replaced"):
            _load_set(f, members, restart=False)
        assert client.keys("*import*") == []
        if change == "restart":
            assert _load_set(f, reading(client, f, key), restart=False) == 30_000
            assert all(f.contains_many(MEMBERS))


def reading(client: redis.Redis, f: BloomFilter[Any], key: str = "spider:dupefilter") -> Members:
    """Return the members of the set, ready to load into a filter on the same server."""
    members = Members(client, key)
    members.go_on(client, f.name, f.info().generation)
    return members


def interrupted(client: redis.Redis) -> BloomFilter[Any]:
    """Return a filter with part of the set and a note of progress, as a killed import leaves them."""
    f: BloomFilter[Any] = BloomFilter(client, "seen", **SIZE)
    f.create()
    members = reading(client, f)
    items = members.items()
    for done in range(1000, 16_001, 1000):
        f.update(islice(items, 1000))
        members.note(done)
    assert client.keys("*import*")
    return f


def test_members_that_nobody_reads_any_more(any_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their generator ends at once, also in a garbage collection, though the scan ahead gets no reply."""
    fill(any_client)
    goes_on, scanned, waited = threading.Event(), Members._scanned, list[bool]()  # calls in a thread

    def stuck(self: Members, cursor: int) -> Any:
        if cursor:
            waited.append(goes_on.wait(PATIENCE))
        return scanned(self, cursor)

    monkeypatch.setattr(Members, "_scanned", stuck)
    items = Members(any_client, "spider:dupefilter").items()
    assert next(items)
    del items
    assert not waited
    goes_on.set()


@for_each("option", ["--from-file", "--from-set"])
def test_a_signal_ends_the_wait_for_a_server(option: str, tmp_path: Path) -> None:
    """Also before the import begins."""
    path = str(tmp_path / option)  # a client of another test may connect to a port that was free
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path)
        silent.listen()
        with started("import", "f", option, "/dev/null", "--url", f"unix://{path}") as run:
            silent.accept()
            run.send_signal(signal.SIGTERM)
            assert run.wait(60) == 128 + signal.SIGTERM


@pytest.mark.long
def test_a_set_of_a_million_is_imported(any_client: redis.Redis) -> None:
    """All of a million members are imported; the log has the times of this and of `update`, twice as fast."""
    members, seconds = million(any_client), {}
    for way in ("load", "import"):
        f = BloomFilter(any_client, "seen", capacity=2_000_000, error_rate=1e-6)
        f.create()
        begin = time.perf_counter()
        if way == "load":
            f.update(members)
        else:
            assert _load_set(f, reading(any_client, f, "set"), restart=False) == 1_000_000
        seconds[way] = time.perf_counter() - begin
        assert f.info().count == pytest.approx(1_000_000, rel=0.001)
        f.delete()
    log.info("seconds: %s", seconds)


@pytest.mark.long
def test_a_set_of_a_million_is_imported_in_little_memory(any_server: Server, any_client: redis.Redis) -> None:
    """The import of a million members needs no more memory than that of a tenth."""
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
    """Bad input is status 2 and the wrong server status 3, each with one line."""
    with any_server.client() as client:
        client.hset("hash", "a", "b")
        client.sadd("set", 1)
        client.rpush("taken", 1)
    url = ("--url", any_server.url)
    wrong: list[tuple[tuple[str, ...], bytes]] = [
        (("--from-set", "hash"), b"is a hash"),
        (("--from-set", "missing"), b"no key 'missing'"),
        ((), b"give one of"),
        (("--from-set", "hash", "--from-file", "-"), b"give one of"),
        (("--from-file", "-", "--from-url", any_server.url), b"--from-url is for"),
        (("--from-file", "-"), b"needs --capacity"),
    ]
    texts = f"{any_server.url}?decode_responses=true"
    wrong += [(("--from-set", "set", "--from-url", texts), b"leave decode_responses out of the URL")]
    for options, message in wrong:
        done = run_command("import", "new", *options, *url)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr
        assert message in done.stderr
    done = run_command("import", "taken", "--from-set", "set", *url)
    assert (done.returncode, b"holds no Bloom filter (Operation against" in done.stderr) == (2, True)
    with running(any_server.binary) as plain:
        done = run_command("import", "new", "--from-redisbloom", "x", *url, "--from-url", plain.url)
    assert (done.returncode, b"a server with the module RedisBloom" in done.stderr) == (3, True)


def test_lines_of_a_file_are_imported(any_server: Server, tmp_path: Path) -> None:
    """Each line of a file is imported as an item."""
    (tmp_path / "items").write_text("a\nb\nb\n")
    url = ("--url", any_server.url)
    report = printed("import", "new", "--from-file", str(tmp_path / "items"), "--capacity", 1000, *url)
    assert report == b"read   3\ncount  2\n"
    assert printed("check", "new", "a", "b", "c", *url) == b"a\nb\n"


def test_a_filter_of_redisbloom_is_imported(any_server: Server, any_client: Any) -> None:
    """A filter is imported directly from BF.SCANDUMP; the report has the layout that opens it."""
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


def test_lines_that_were_read_before_a_signal(any_server: Server) -> None:
    """Lines read before a signal are loaded and reported; then the status is 128 + the signal's number."""
    f = BloomFilter(any_server.client(), "seen", **SIZE)
    f.create()
    with started("import", "seen", "--url", any_server.url, "--from-file", "-") as process:
        assert process.stdin is not None
        process.stdin.write(b"".join(b"%d\n" % number for number in range(2000)))
        process.stdin.flush()
        wait_until("all lines are read", lambda: not unread(process.stdin))
        process.send_signal(signal.SIGTERM)
        out = process.communicate()[0]
    assert process.returncode == 128 + signal.SIGTERM
    assert out.split() == b"read 2000 count 2000".split()
    assert all(f.contains_many([str(number) for number in range(2000)]))


def unread(pipe: Any) -> int:
    """Return the number of unread bytes in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
