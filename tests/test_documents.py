"""README.md and the pages of docs/: every example runs, and what they promise of themselves holds."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import compat, embedded, errors
from tests.compat.test_redisbloom_dump import dump, two_links
from tests.support.commands import run_command
from tests.support.readme import PAGES, README, ROOT, Block, answers_asserted, blocks, program
from tests.support.servers import Server
from tests.support.values import for_each

NOT_RUN = ("make ", "pip install ", "python3 -m venv ", ". .venv/")
"""Commands that install something, or that other tests run."""
SAMPLES = {
    "access.log.gz": gzip.compress(b"".join(b"10.0.0.%d GET /%d\n" % (i % 7, i) for i in range(200))),
    "events.jsonl": b"".join(b'{"event": %d}\n' % i for i in range(100)),
}


def a_dump() -> list[tuple[int, bytes]]:
    """Return the replies of BF.SCANDUMP for a filter of RedisBloom that has "hello"."""
    layouts, bits = two_links()
    chunks, at = [(1, dump(layouts, bits))], 1
    for data in bits:
        at += len(data)
        chunks.append((at, data))
    return [*chunks, (0, b"")]


@pytest.fixture
def at_home(any_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server that clients without an address reach; it has the dump of a RedisBloom filter, too."""
    replies = iter(a_dump())
    send: Any = redis.Redis.execute_command

    class Here(redis.Redis):
        def __init__(self, **options: Any) -> None:
            options = {name: value for name, value in options.items() if name not in ("host", "port")}
            where = (
                {}
                if {"connection_pool", "unix_socket_path"} & set(options)
                else {"unix_socket_path": any_server.socket}
            )
            super().__init__(**(where | options))

        def execute_command(self, *command: Any, **options: Any) -> Any:
            return next(replies) if command[0] == "BF.SCANDUMP" else send(self, *command, **options)

    class HereToo(redis.asyncio.Redis):
        def __init__(self, **options: Any) -> None:
            super().__init__(**({"unix_socket_path": any_server.socket} | options))

    monkeypatch.setattr(redis, "Redis", Here)
    monkeypatch.setattr(redis, "RedisCluster", Here)  # clusters have tests of their own
    monkeypatch.setattr(redis.asyncio, "Redis", HereToo)
    return any_server


def name_of(block: Block) -> str:
    return f"{block.page}:{block.line}"


@pytest.mark.parametrize("block", [b for b in blocks("python") if not b.caption], ids=name_of)
def test_examples_run(block: Block, at_home: Server) -> None:
    """With the answers that their comments give."""
    names: dict[str, Any] = {"__name__": "example"}
    text = program(answers_asserted(block.text)).replace("redis://localhost", at_home.url)
    exec(compile(text, name_of(block), "exec"), names)  # noqa: S102 - the project's own pages
    if "main" in names:
        asyncio.run(names["main"]())


CONSOLES = [list(group) for _, group in groupby(blocks("console", "python"), lambda block: block.page)]


@pytest.mark.parametrize(
    "page",
    [group for group in CONSOLES if any(b.language == "console" for b in group)],
    ids=lambda page: page[0].page,
)
def test_commands_run(
    page: list[Block], any_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of a page, one after the other, in a directory that has the files of its captions."""
    for name, content in SAMPLES.items():
        (tmp_path / name).write_bytes(content)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, arguments in {"bloomredis": "-m bloomredis.cli", "python": ""}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        (programs / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    for block in page:
        if block.caption:
            (tmp_path / block.caption).write_text(block.text)
        for command, expected in commands(block):
            printed = re.sub(" +", " ", output(command.replace("redis://localhost", any_server.url)))
            assert not expected or fnmatchcase(printed, expected), command


def output(command: str) -> str:
    """Return what a command prints: of a pipeline, `bloomredis` runs in this process, bash runs the rest."""
    data, plain = b"", not re.search(r"[$&;>]", command)
    for part in command.split(" | ") if plain else [command]:
        if plain and part.startswith("bloomredis "):
            done = run_command(*shlex.split(part, comments=True)[1:], data=data)
        else:
            bash = ["/bin/bash", "-o", "pipefail", "-c", part]
            done = subprocess.run(bash, input=data, capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) in {(0, b""), (1, b"")}, command  # 1 of a doctor
        data = done.stdout
    return data.decode()


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Yield the commands of a block to run, and a pattern of what each prints, whose columns may be wider."""
    if block.language != "console":
        return
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        if not command.startswith(NOT_RUN):
            literal = re.sub(r"([*?\[])", r"[\1]", re.sub(" +", " ", shown))
            yield command, re.sub(r"^\.\.\.\n", "*", literal, flags=re.MULTILINE)


def test_no_block_is_left_out() -> None:
    """A block is Python or a console; the rest is directives, and the rule that test_rights runs."""
    assert {block.language for block in blocks()} <= {
        "python",
        "console",
        "text",
        "{toctree}",
        "{eval-rst}",
        "{include}",
    }
    assert [name_of(block) for block in blocks("text")] == ["rights:5"]


def test_the_dupefilter_of_the_page_on_migrating(at_home: Server) -> None:
    """It does what Scrapy asks of one."""
    (text,) = (block.text for block in blocks("python") if "class DupeFilter" in block.text)
    names: dict[str, Any] = {}
    exec(text, names)  # noqa: S102 - the project's own page
    fingerprinter = SimpleNamespace(fingerprint=lambda request: request.url.encode())
    crawler = SimpleNamespace(request_fingerprinter=fingerprinter, settings={"REDIS_URL": at_home.url})
    dupefilter = names["DupeFilter"].from_crawler(crawler)
    requests = [SimpleNamespace(url=url) for url in ("a", "b", "a")]
    assert [dupefilter.request_seen(request) for request in requests] == [False, False, True]


def test_the_readme_is_short() -> None:
    """At most 150 lines and 1,300 words."""
    text = README.read_text()
    assert len(text.splitlines()) <= 150
    assert len(text.split()) <= 1300


@for_each("page", PAGES)
def test_links_lead_somewhere(page: Path) -> None:
    """Each relative link is to a file of the checkout, and to a heading that it has."""
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
        path, _, heading = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        slugs = [
            re.sub(r"[^\w -]", "", line).strip().replace(" ", "-").lower()
            for line in re.findall(r"^#+ (.*)", file.read_text("utf-8", "replace"), re.MULTILINE)
        ]
        assert not heading or heading in slugs, (target, slugs)


def test_each_page_is_in_the_index() -> None:
    """Once."""
    listed = re.findall(r"^[\w-]+$", "".join(block.text for block in blocks("{toctree}")), re.MULTILINE)
    assert sorted([*listed, "index", README.stem]) == sorted(page.stem for page in PAGES)


@for_each("module", [bloomredis, bloomredis.asyncio, compat, embedded])
def test_the_reference_has_all_that_is_public(module: Any) -> None:
    """Each name of `__all__`; errors come with their module."""
    reference = (ROOT / "docs" / "reference.md").read_text()
    documented = set(re.findall(r"auto\w+:: (\S+)", reference)) | {
        f"bloomredis.{name}" for name in vars(errors)
    }
    assert {f"{module.__name__}.{name}" for name in module.__all__} - documented == set()
