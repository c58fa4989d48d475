"""`bloomredis save`, `restore`, `copy` and `merge` on real servers."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest

import bloomredis
from tests.support.commands import COMMAND, ENVIRONMENT, printed, run_command
from tests.support.saving import ABSENT, ITEMS, KINDS
from tests.support.servers import Server, binaries, running

ASKED = [*ITEMS, *ABSENT]


@pytest.mark.parametrize("kind", ["blocked", "scaling", "sharded"])
def test_a_filter_of_each_kind_is_saved_and_restored(any_server: Server, kind: str, tmp_path: Path) -> None:
    """A filter of each kind is saved and restored by a file or a pipe, and to another server."""
    of, parameters = KINDS[kind]
    url = ("--url", any_server.url)
    with any_server.client() as client, running(binaries()["redis-6.2"]) as other, other.client() as away:
        f = getattr(bloomredis, of)(client, "seen", **parameters)
        f.add_many(ITEMS)
        wanted = f.contains_many(ASKED)
        file = tmp_path / "seen.bloom"
        saved = json.loads(printed("save", "seen", str(file), *url, "--json"))
        assert saved == {"name": "seen", "file": str(file), "size_bytes": file.stat().st_size}
        report: Any = json.loads(printed("restore", "copy", str(file), "--url", other.url, "--json"))
        assert (report["name"], report["count"]) == ("copy", f.info().count)
        assert getattr(bloomredis, of).open(away, "copy").contains_many(ASKED) == wanted
        assert run_command("restore", "copy", str(file), "--url", other.url).returncode == 2
        piped = printed("save", "seen", "-", *url)
        assert len(piped) == len(file.read_bytes())
        printed("restore", "piped", "-", *url, data=piped)
        assert getattr(bloomredis, of).open(client, "piped").contains_many(ASKED) == wanted
        printed("copy", "seen", "moved", *url, "--to-url", other.url)
        assert getattr(bloomredis, of).open(away, "moved").contains_many(ASKED) == wanted


def test_stdin_begins_where_it_is(any_server: Server, tmp_path: Path) -> None:
    """A shell may have read a part of the file before."""
    made = bloomredis.BloomFilter.from_url(any_server.url, "seen", capacity=100, error_rate=0.01)
    made.add("x")
    made.save(tmp_path / "saved")
    (tmp_path / "after").write_bytes(b"0123456789" + (tmp_path / "saved").read_bytes())
    with (tmp_path / "after").open("rb") as file:
        os.lseek(file.fileno(), 10, os.SEEK_SET)
        command = [*COMMAND, "restore", "again", "-", "--url", any_server.url]
        subprocess.run(command, stdin=file, env=ENVIRONMENT, capture_output=True, check=True)
    assert bloomredis.BloomFilter.from_url(any_server.url, "again").contains("x")


def test_a_changed_file_is_refused(any_server: Server, tmp_path: Path) -> None:
    """A changed file is refused with one line that names it and status 2; nothing is written."""
    url = ("--url", any_server.url)
    printed("create", "seen", "--capacity", 1000, "--error-rate", 0.01, *url)
    file = tmp_path / "seen.bloom"
    printed("save", "seen", str(file), *url)
    for data in (b"", b"text\n", file.read_bytes()[:-1], file.read_bytes()[:50]):
        file.write_bytes(data)
        done = run_command("restore", "copy", str(file), *url)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
        assert done.stderr.count(str(file).encode()) == 1
    piped = printed("save", "seen", "-", *url) + b"\n"
    done = run_command("restore", "copy", "-", *url, data=piped)
    assert (done.returncode, b"has data after its checksum" in done.stderr) == (2, True)
    assert any_server.keys() == ["seen"]


def test_a_terminal_gets_no_bits(any_server: Server) -> None:
    """`save NAME -` is for a pipe or a file."""
    printed("create", "seen", "--capacity", 1000, "--error-rate", 0.01, "--url", any_server.url)
    ours, theirs = pty.openpty()
    command = [*COMMAND, "save", "seen", "-", "--url", any_server.url]
    done = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False)
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 2
    assert b"give a FILE" in done.stderr


def test_filters_are_merged(any_server: Server, tmp_path: Path) -> None:
    """Filters of one server, of another one and of a file are merged; other parameters are refused."""
    url = ("--url", any_server.url)
    plan = ("--capacity", 1000, "--error-rate", 1e-6)
    for name in ("one", "other"):
        printed("create", name, *plan, *url)
        printed("add", name, name, *url)
    assert b"count       2\n" in printed("merge", "one", "other", *url)
    with running(binaries()["redis-6.2"]) as away:
        printed("create", "third", *plan, "--url", away.url)
        printed("add", "third", "third", "--url", away.url)
        printed("merge", "one", "third", *url, "--from-url", away.url)
        printed("add", "third", "fourth", "--url", away.url)
        printed("save", "third", str(tmp_path / "third.bloom"), "--url", away.url)
    printed("merge", "one", str(tmp_path / "third.bloom"), "--file", *url)
    assert (
        printed("check", "one", "one", "other", "third", "fourth", "x", *url)
        == b"one\nother\nthird\nfourth\n"
    )
    printed("create", "wide", "--capacity", 2000, "--error-rate", 1e-6, *url)
    done = run_command("merge", "one", "wide", *url)
    assert (done.returncode, b"capacity 2000" in done.stderr) == (2, True)
