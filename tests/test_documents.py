"""README.md and the pages of docs/: every example runs, and the claims about the pages themselves hold."""

from __future__ import annotations

import ast
import asyncio
import gzip
import inspect
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
from bloomredis import compat, errors, testing
from bloomredis.cli import reports
from bloomredis.cli.reports import human
from tests.compat.test_redisbloom_dump import dump, two_links
from tests.support.commands import run_command
from tests.support.readme import (
    ADAPTERS,
    DOCS,
    PAGES,
    README,
    ROOT,
    Block,
    answers_asserted,
    blocks,
    programs,
)
from tests.support.servers import Server
from tests.support.values import for_each
from tools import pictures

pytestmark = pytest.mark.docs

PACKAGE = ROOT / "bloomredis"
NOT_RUN = ("make ", "pip install ", "python3 -m venv ", ". .venv/")
"""Commands that install something, or that other tests run."""
SAMPLES = {
    "access.log.gz": gzip.compress(b"".join(b"10.0.0.%d GET /%d\n" % (i % 7, i) for i in range(200))),
    "events.jsonl": b"".join(b'{"event": %d}\n' % i for i in range(100)),
}


def a_dump() -> list[tuple[int, bytes]]:
    """Return the replies of BF.SCANDUMP for a RedisBloom filter that contains "hello"."""
    layouts, bits = two_links()
    chunks, at = [(1, dump(layouts, bits))], 1
    for data in bits:
        at += len(data)
        chunks.append((at, data))
    return [*chunks, (0, b"")]


@pytest.fixture
def at_home(any_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server that clients without an address reach, and that replies to BF.SCANDUMP."""
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


@pytest.mark.parametrize("page", programs())
def test_pages_run(page: str, at_home: Server) -> None:
    """Each block can be pasted and run, from top to bottom, in a namespace that has nothing else."""
    names: dict[str, Any] = {"__name__": "example"}
    with asyncio.Runner() as runner:
        for block in programs()[page]:
            text = answers_asserted(block.text).replace("redis://localhost", at_home.url)
            code = compile(text, name_of(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            waiting = eval(code, names)  # noqa: S307 - the project's own pages
            if waiting is not None:
                runner.run(waiting)


CONSOLES = [list(group) for _, group in groupby(blocks("console", "python"), lambda block: block.page)]


@pytest.mark.parametrize(
    "page",
    [group for group in CONSOLES if any(b.language == "console" for b in group)],
    ids=lambda page: page[0].page,
)
def test_commands_run(
    page: list[Block], any_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of a page run one after the other, in a directory with the files of its captions."""
    for name, content in SAMPLES.items():
        (tmp_path / name).write_bytes(content)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, arguments in {"bloomredis": "-m bloomredis.cli", "python": ""}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        (programs / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(reports, "for_a_person", lambda: True)  # as in a terminal
    monkeypatch.chdir(tmp_path)
    for block in page:
        if block.caption:
            (tmp_path / block.caption).write_text(block.text)
        for command, expected in commands(block):
            printed = re.sub(" +", " ", output(command.replace("redis://localhost", any_server.url)))
            assert not expected or fnmatchcase(printed, expected), command


def output(command: str) -> str:
    """Return what a command prints; in a pipeline `bloomredis` runs in this process, bash runs the rest."""
    data, plain = b"", not re.search(r"[$&;>]", command)
    for part in command.split(" | ") if plain else [command]:
        if plain and part.startswith("bloomredis "):
            done = run_command(*shlex.split(part, comments=True)[1:], data=data)
        else:
            bash = ["/bin/bash", "-o", "pipefail", "-c", part]
            done = subprocess.run(bash, input=data, capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) in {(0, b""), (1, b"")}, command  # 1: doctor has a finding
        data = done.stdout
    return data.decode()


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Yield the commands of a block, and for each a pattern of its output, whose columns may be wider."""
    if block.language != "console":
        return
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        if not command.startswith(NOT_RUN):
            literal = re.sub(r"([*?\[])", r"[\1]", re.sub(" +", " ", shown))
            yield command, re.sub(r"^\.\.\.\n", "*", literal, flags=re.MULTILINE)


def test_no_block_is_left_out() -> None:
    """Every block is Python, a console, a directive, or one of three texts that other tests cover."""
    assert {block.language for block in blocks()} <= {
        "python",
        "console",
        "text",
        "yaml",
        "{toctree}",
        "{eval-rst}",
        "{include}",
    }
    assert [block.page for block in blocks("text", "yaml")] == ["production", "production", "rights"]


def test_the_dupefilter_of_the_page_on_migrating(at_home: Server) -> None:
    """The dupefilter on the page about migrating does what Scrapy asks of a dupefilter."""
    (text,) = (block.text for block in blocks("python") if "class DupeFilter" in block.text)
    names: dict[str, Any] = {}
    exec(text, names)  # noqa: S102 - the project's own page
    fingerprinter = SimpleNamespace(fingerprint=lambda request: request.url.encode())
    crawler = SimpleNamespace(request_fingerprinter=fingerprinter, settings={"REDIS_URL": at_home.url})
    dupefilter = names["DupeFilter"].from_crawler(crawler)
    requests = [SimpleNamespace(url=url) for url in ("a", "b", "a")]
    assert [dupefilter.request_seen(request) for request in requests] == [False, False, True]


def test_the_readme_is_short() -> None:
    """README.md has at most 150 lines and 1,300 words."""
    text = README.read_text()
    assert len(text.splitlines()) <= 150
    assert len(text.split()) <= 1300


@for_each("page", PAGES)
def test_links_lead_somewhere(page: Path) -> None:
    """Each relative link leads to a file of the checkout, and to a heading in that file."""
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
    """The index names each page once."""
    trees = "".join(block.text for block in blocks("{toctree}"))
    listed = re.findall(r"^(?:.* <)?([\w/-]+)>?$", trees, re.MULTILINE)
    pages = [page.relative_to(DOCS).with_suffix("").as_posix() for page in PAGES if page != README]
    assert sorted([*listed, "index"]) == sorted(pages)


def test_the_tables_of_guarantees() -> None:
    """Each row says who, what happens, what you see and what to do; a cell has at most 30 words."""
    promised, _, others = (DOCS / "guarantees.md").read_text().partition("## Asking again")
    heads = set(re.findall(r"^(\|.*)\n\|---", promised, re.MULTILINE))
    assert heads == {"| who | what happens | what you see | what to do |"}
    rows = re.findall(r"^\| .*", promised + others, re.MULTILINE)
    cells = [cell for row in rows for cell in row.strip("| ").split(" | ")]
    assert [cell for cell in cells if len(re.sub(r"\]\(.*?\)", "]", cell).split()) > 30] == []


def test_links_have_texts() -> None:
    """Code hosts show a link without a text as nothing. Other tests cover the pages of adapters."""
    for page in PAGES:
        if not (ADAPTERS / f"{page.stem}.py").exists():
            assert "[](" not in page.read_text(), page


REFERENCE = "".join(page.read_text() for page in sorted((DOCS / "reference").glob("*.md")))


@for_each("module", [bloomredis, bloomredis.asyncio, compat, testing])
def test_the_reference_has_all_that_is_public(module: Any) -> None:
    """The reference has each name of `__all__`, and each error under the name of its module."""
    documented = set(re.findall(r"(?:auto\w+|class|data):: ([\w.]+)", REFERENCE)) | {
        f"bloomredis.{name}" for name in vars(errors)
    }
    assert {f"{module.__name__}.{name}" for name in module.__all__} - documented == set()


@for_each("adapter", sorted((PACKAGE / "contrib").glob("[!_]*.py")))
def test_the_reference_has_every_adapter(adapter: Path) -> None:
    """The names that an adapter exports, read from its source: its framework may be missing."""
    (names,) = re.findall(r"^__all__ = (\[[^]]*\])", adapter.read_text(), re.MULTILINE)
    module = f"bloomredis.contrib.{adapter.stem}"
    if f"automodule:: {module}\n" not in REFERENCE:
        for name in ast.literal_eval(names):
            assert f":: {module}.{name}\n" in REFERENCE


CLASSES = ("BloomFilter", *(f"{kind}BloomFilter" for kind in ("Scaling", "Rotating", "Counting", "Sharded")))


def test_the_table_of_methods() -> None:
    """The table has each public method, how its docstring begins, and its classes; `merge` where it works."""
    row = r"^\| \[`(\w+)`\]\((\S*)\) \| (.*?) \| ([✓-](?: \| [✓-]){4}) \|$"
    rows = re.findall(row, (DOCS / "reference.md").read_text(), re.MULTILINE)
    shown = {name: [mark == "✓" for mark in marks.split(" | ")] for name, _, _, marks in rows}
    real = {
        name: [hasattr(getattr(bloomredis, each), name) for each in CLASSES]
        for each in CLASSES
        for name in dir(getattr(bloomredis, each))
        if not name.startswith("_")
    }
    del real["name"]
    real["merge"] = [True, False, False, False, True]
    assert shown == real
    for name, page, does, _ in rows:
        assert re.search(rf"auto(method:: .*\.{name}$|class:: )", (DOCS / page).read_text(), re.MULTILINE), (
            name
        )
        owners = [getattr(bloomredis, each) for each in CLASSES]
        method = next(getattr(owner, name) for owner in owners if hasattr(owner, name))
        assert does == " ".join((inspect.getdoc(method) or "").partition("\n\n")[0].split())


def test_the_table_of_memory() -> None:
    """The sizes in the table of memory are those that `plan` prints."""
    text = (DOCS / "memory.md").read_text()
    for items, *sizes in re.findall(r"^\| ([\d,]+) \| (.*) \| (.*) \| (.*) \| (.*) \|$", text, re.MULTILINE):
        capacity = int(items.replace(",", ""))
        rates = (1e-2, 1e-3, 1e-4, 1e-6)
        assert sizes == [human(bloomredis.plan(capacity, rate).size_bytes) for rate in rates]


def texts_of(source: Path) -> Iterator[str]:
    """Yield the texts of a module, with a NUL in the place of each value."""
    for node in ast.walk(ast.parse(source.read_text("utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


SAID_BY_OTHERS = (
    "CERTIFICATE_VERIFY_FAILED",
    "Connection refused",
    "Event loop is closed",
    "too many positional arguments",
)
VALUES = re.compile(r"'\w+'|capacity|\d+|(?<=\()[A-Z]+(?=\))|\w*BloomFilter|str$")
"""Parts of an error on the page that stand for values."""


def test_each_error_of_troubleshooting_is_said() -> None:
    """The library's source has each error text of the page, except those of Python and of clients."""
    text = (DOCS / "troubleshooting.md").read_text().partition("## No error")[0]
    rows = re.findall(r"^\| `(.*?)` \|", text, re.MULTILINE)
    assert len(rows) > 25
    said = "\n".join(each for source in PACKAGE.rglob("*.py") for each in texts_of(source))
    for row in rows:
        parts = VALUES.split(row)
        assert len("".join(parts)) > 8
        if row not in SAID_BY_OTHERS:
            assert re.search("\0".join(map(re.escape, parts)).strip("\0"), said), row


def test_drawings_are_those_of_their_script() -> None:
    """`python -m tools.pictures` writes them."""
    assert (DOCS / "claim.svg").read_text("utf-8") == "\n".join(pictures.claim()) + "\n"


@for_each("page", PAGES)
def test_pictures_have_texts(page: Path) -> None:
    """Each picture of a page has a text that says what it shows."""
    for text, target in re.findall(r"!\[(.*?)\]\((\S+)\)", page.read_text()):
        assert len(text) > 40, target
