"""Lines that end in CR LF, as programs on Windows write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bloomredis import CountingBloomFilter
from tests.support.commands import printed, run_command
from tests.support.servers import Server
from tests.support.values import for_each

DATA = b"https://example.org/a\r\nhttps://example.org/b\r\n"
ITEMS = DATA.replace(b"\r", b"").splitlines()
NOTE = b"bloomredis: lines end in CR LF; the CR is left out, unless --keep-cr is given\n"
SIZE = ("--capacity", 1000, "--error-rate", 1e-9)

READERS = ("dedupe", "add", "import", "check", "remove")
"""The commands that read lines."""


@pytest.fixture
def seen(any_server: Server) -> CountingBloomFilter[bytes]:
    """A filter with the items with and without their CR."""
    made = CountingBloomFilter[bytes](any_server.client(), "seen", capacity=1000, error_rate=1e-9)
    made.create()
    return made


def read(command: str, server: Server, folder: Path, *options: str) -> tuple[bytes, bytes]:
    """Return what a command prints that reads the lines, on stdout and on stderr."""
    own: tuple[object, ...] = ("--name", "seen") if command == "dedupe" else ("seen",)
    if command == "import":
        (folder / "lines").write_bytes(DATA)
        own += ("--from-file", folder / "lines")
    done = run_command(command, *own, *options, "--url", server.url, data=DATA)
    assert done.returncode in (0, 1)
    return done.stdout, done.stderr


@for_each("command", READERS)
def test_the_cr_is_left_out(
    any_server: Server, seen: CountingBloomFilter[bytes], tmp_path: Path, command: str
) -> None:
    """An item is the line without CR, and the note comes once; so a program finds what was loaded."""
    seen.clear()
    if command in ("check", "remove"):
        seen.add_many(ITEMS)
    out, err = read(command, any_server, tmp_path)
    assert seen.contains_many(ITEMS) == [command != "remove"] * 2
    assert not any(seen.contains_many(DATA.splitlines(keepends=True)))
    assert err == NOTE
    assert b"\r" not in out
    if command in ("dedupe", "check"):
        assert out.splitlines() == ITEMS


@for_each("command", READERS)
def test_the_cr_is_kept(
    any_server: Server, seen: CountingBloomFilter[bytes], tmp_path: Path, command: str
) -> None:
    """With --keep-cr an item is the line with its CR, as for sort and awk; nothing is noted."""
    seen.clear()
    kept = [item + b"\r" for item in ITEMS]
    if command in ("check", "remove"):
        seen.add_many(kept)
    out, err = read(command, any_server, tmp_path, "--keep-cr")
    assert seen.contains_many(kept) == [command != "remove"] * 2
    assert not any(seen.contains_many(ITEMS))
    assert err == b""
    if command in ("dedupe", "check"):
        assert out == DATA


def test_items_that_are_arguments_are_no_lines(any_server: Server, seen: CountingBloomFilter[bytes]) -> None:
    """Their CR stays."""
    printed("add", "seen", "a\r", "--url", any_server.url)
    assert seen.contains_many([b"a\r", b"a"]) == [True, False]


def test_several_files(any_server: Server, tmp_path: Path) -> None:
    """The note comes once for all of them; a CR without LF stays, also at the end of a file."""
    for name, data in (("one", DATA), ("two", b"a\rb\nc\r"), ("three", DATA)):
        (tmp_path / name).write_bytes(data)
    files = [tmp_path / name for name in ("one", "two", "three")]
    done = run_command("dedupe", *files, "--url", any_server.url)
    assert done.stdout == b"\n".join([*ITEMS, b"a\rb", b"c\r", b""])
    assert done.stderr == NOTE
