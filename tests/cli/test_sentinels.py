"""The command with URLs of Sentinels, on a real Sentinel."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.commands import printed, run_command
from tests.support.sentinels import NAME, Sentinel, watched
from tests.support.values import for_each

SIZE = ("--capacity", 1000, "--error-rate", "1%")
PASSWORD = "secret-of-sentinel"  # noqa: S105 - made up


@pytest.fixture(scope="module")
def sentinel() -> Iterator[Sentinel]:
    """A Sentinel with a password."""
    with watched(sentinel_password=PASSWORD) as found:
        yield found


def url_of(sentinel: Sentinel, name: str = NAME) -> tuple[str, str]:
    """Return the option that names a primary by its Sentinel."""
    return "--url", f"sentinel://{sentinel.address}/{name}?sentinel_password={PASSWORD}"


COMMANDS: dict[str, tuple[object, ...]] = {
    "add": ("seen", "x"),
    "create": ("seen", *SIZE),
    "doctor": (),
    "info": ("seen",),
    "list": (),
    "watch": ("seen", "--json", "--once"),
    "dedupe": ("--name", "seen"),
}


@for_each("command", COMMANDS)
def test_a_sentinel_is_no_server_of_filters(sentinel: Sentinel, command: str) -> None:
    """Each command says so, with the URL to give instead, and without the password."""
    for url in (f"redis://:{PASSWORD}@{sentinel.address}", f"redis://:{PASSWORD}@{sentinel.address}/0?db=0"):
        for more in ((), ("--no-cluster",)):
            done = run_command(command, *COMMANDS[command], *more, "--url", url)
            assert (done.returncode, done.stdout) == (2, b"")
            told = done.stderr.decode()
            assert (
                f"is a Sentinel, which stores no filters; for the primary that it names, give sentinel://{sentinel.address}/{NAME}\n"
                in told
            )
            assert PASSWORD not in told


def test_a_sentinel_of_several_primaries(sentinel: Sentinel) -> None:
    """The message has their names."""
    sentinel.ask("SENTINEL MONITOR", "another", "127.0.0.1", sentinel.primary.options[3], "1")
    done = run_command("doctor", "--url", f"redis://:{PASSWORD}@{sentinel.address}")
    sentinel.ask("SENTINEL REMOVE", "another")
    assert f"sentinel://{sentinel.address}/NAME; NAME is one of another, {NAME}\n" in done.stderr.decode()


def test_the_primary_behind_a_sentinel(sentinel: Sentinel) -> None:
    """The commands reach it by the URL of the Sentinel."""
    url = url_of(sentinel)
    printed("create", "seen", *SIZE, *url)
    assert printed("add", "seen", "x", "y", *url) == b"read  2\nnew   2\n"
    assert printed("check", "seen", "x", "z", *url) == b"x\n"
    assert b"seen" in printed("list", *url)
    assert json.loads(printed("watch", "seen", "--json", "--once", "--every", "0.1", *url))["count"] == 2
    assert printed("dedupe", "--name", "lines", *url, data=b"a\nb\na\n") == b"a\nb\n"
    found = json.loads(run_command("doctor", "seen", "--json", "--trial", "--yes", *url).stdout)
    assert found["url"] == f"sentinel://{sentinel.address}/{NAME}"
    replicated = [
        one["severity"] for one in found["findings"] if one["seen"].startswith("add(min_replicas=1)")
    ]
    assert replicated == ["ok"]
    with sentinel.primary.client() as client:
        assert client.exists("seen") == 1


WRONG = {
    "a name that it does not know": (f"{{address}}/absent?sentinel_password={PASSWORD}", 3, "check the name"),
    "no Sentinel": ("127.0.0.1:1/m?sentinel_password=hunter2", 3, "whether the Sentinels answer"),
    "another password": (
        f"{{address}}/{NAME}?sentinel_password=hunter2",
        3,
        "?sentinel_password= in --url is for",
    ),
    "no password": (f"{{address}}/{NAME}", 3, "?sentinel_password= in --url is for"),
    "no name": (":hunter2@{address}", 2, "sentinel://host:26379,host2:26379/mymaster"),
    "no Sentinel but a server": (f"127.0.0.1:{{server}}/{NAME}", 3, "--url names no Sentinel"),
    "an option": (f"{{address}}/{NAME} --cluster", 2, "--cluster needs a --url with host and port"),
}


@for_each(("rest", "status", "way_out"), WRONG.values())
def test_a_wrong_url(sentinel: Sentinel, rest: str, status: int, way_out: str) -> None:
    """One line says what to check, and has no password."""
    server = sentinel.primary.options[3]
    url, *options = f"sentinel://{rest.format(address=sentinel.address, server=server)}".split()
    done = run_command("info", "seen", *options, "--url", url)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (status, b"", 1)
    assert way_out in done.stderr.decode()
    assert b"hunter2" not in done.stderr
    assert b"redis.client" not in done.stderr
