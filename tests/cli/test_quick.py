"""Command lines that are read without typer's parser mean the same to typer."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest
import typer.main

from bloomredis.cli import quick
from bloomredis.cli.app import app
from bloomredis.cli.commands import COMMANDS, function_of
from tests.support.commands import run_command
from tests.support.servers import Server
from tests.support.values import for_each

GROUP: Any = typer.main.get_command(app)
LINES = [
    "dedupe",
    "dedupe a - b",
    "dedupe --count a --capacity 1_000 b --missing=drop --keep-cr",
    "dedupe --url memory:// --name x --no-cluster --field 3",
    "dedupe --url= --name=",
    "dedupe -f 1,3-4 -d : -i -D -z --json-key a --json-key b.c",
    "add x --url memory:// a b -",
    "check --json x --url memory:// --layout classic",
    "info --cluster x --url redis://h:1",
    "info x",
    "create x --kind scaling --capacity 1e6 --error-rate 0.1% --url memory://",
    "import x --from-file a --from-file b --url memory://",
    "export x y --url memory://",
    "copy x y --to-url memory:// --url memory://",
    "expire x 15m --url memory://",
    "demo",
    "list --url memory://",
]
"""One line for each kind of option and argument."""


@for_each("line", LINES)
def test_it_reads_what_typer_reads(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options, defaults, arguments and the environment give the same values."""
    monkeypatch.setenv("BLOOMREDIS_URL", "redis://of-the-environment")
    name, *words = line.split()
    call: Any = quick.call(function_of(name), words)
    ours = {key: one.default for key, one in signature(function_of(name)).parameters.items()}
    theirs = GROUP.commands[name].make_context(name, words).params
    assert ours | call.keywords == {
        key: value or ours[key] if value == () else value for key, value in theirs.items()
    }


LEFT = [
    "dedupe --help",
    "dedupe --nonsense",
    "dedupe --capacity",
    "dedupe --capacity x",
    "dedupe --count=1",
    "dedupe --cap 5",
    "dedupe -- a",
    "info",
    "info x y --url memory://",
    "expire x soon --url memory://",
]


@for_each("line", LEFT)
def test_the_rest_is_left_to_typer(line: str) -> None:
    """Help, mistakes, and forms that only typer knows."""
    name, *words = line.split()
    assert quick.call(function_of(name), words) is None


def test_a_missing_url_is_left_to_typer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --url and BLOOMREDIS_URL, typer says what is missing."""
    monkeypatch.delenv("BLOOMREDIS_URL", raising=False)
    assert quick.call(function_of("info"), ["x"]) is None


def test_a_status_that_is_no_error(any_server: Server) -> None:
    """A command that ends with a status of its own ends with it."""
    url = ("--url", any_server.url)
    run_command("create", "x", *url, "--capacity", 10, "--error-rate", 0.1)
    assert run_command("check", "x", "a", *url).returncode == 1


@for_each("name", COMMANDS)
def test_it_reads_every_declaration(name: str) -> None:
    """No command has a declaration that this reader does not know."""
    assert quick.declared(function_of(name))
