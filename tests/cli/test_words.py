"""The texts of the command: help and messages name only what exists, and use no other program's wording."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import typer

import bloomredis
import bloomredis.cli
from bloomredis import connect
from bloomredis.cli import options, stderr
from bloomredis.cli.app import app
from bloomredis.cli.kinds import Kind
from bloomredis.protocol import replies
from tests.support.commands import run_command
from tests.support.error_page import rows
from tests.support.servers import Server, binaries, running
from tests.support.values import for_each

GROUP: Any = typer.main.get_command(app)
COMMANDS: dict[str, Any] = GROUP.commands
OPTIONS = {
    name
    for command in COMMANDS.values()
    for one in command.params
    for name in (*one.opts, *one.secondary_opts)
} | {"--help", "--version", "--install-completion"}
VERBS = {"is", "has"}
"""Words that follow the project's name in a sentence."""
SOURCES = sorted(Path(bloomredis.cli.__file__).parent.rglob("*.py"))


def texts(source: Path) -> Iterator[str]:
    """Yield every string of a module, including the parts of f-strings."""
    for node in ast.walk(ast.parse(source.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def named(text: str) -> Iterator[str]:
    """Yield the commands and options that a text names."""
    yield from re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]\b", text)
    yield from (name for name in re.findall(r"\bbloomredis ([a-z]+)\b", text) if name not in VERBS)


def unknown(text: str) -> list[str]:
    """Return the commands and options that a text names and that do not exist."""
    return [name for name in named(text) if name not in OPTIONS | COMMANDS.keys()]


@pytest.mark.lint
@for_each("source", SOURCES)
def test_all_that_is_named_exists(source: Path) -> None:
    """Each text of the command's modules names only existing commands and options."""
    found = [name for text in texts(source) for name in unknown(text)]
    assert found == []


@for_each("name", COMMANDS)
def test_help(name: str) -> None:
    """Help names only what exists, keeps text in brackets, and joins the lines of a paragraph."""
    done = run_command(name, "--help", COLUMNS="80")
    text = done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b"")
    assert unknown(text) == []
    documented = COMMANDS[name].help or ""
    for bracket in re.findall(r"\[[^\]]*\]", documented):
        assert bracket in text
    assert "<=" not in text


@for_each("name", COMMANDS)
def test_help_fits_a_screen(name: str) -> None:
    """It has an example before anything else, at most 40 lines (`dedupe`: 45), and no marks of types."""
    text = run_command(name, "--help", COLUMNS="80").stdout.decode()
    lines = text.splitlines()
    assert len(lines) <= (45 if name == "dedupe" else 40)
    assert lines[4].startswith(f"  Example: bloomredis {name}")
    assert not re.search(r"[{<]", text)


@pytest.mark.docs
def test_each_option_of_dedupe_has_an_example() -> None:
    """The page of the command uses each option in a line that a test runs."""
    page = Path(bloomredis.cli.__file__).parents[2] / "docs" / "command-line.md"
    lines = re.findall(r"^\$ (.*bloomredis dedupe.*)$", page.read_text("utf-8"), re.MULTILINE)
    used = set(" ".join(lines).split())
    params = [
        one for one in COMMANDS["dedupe"].params if one.param_type_name == "option" and one.name != "help"
    ]
    assert len(params) > 15
    assert [one.name for one in params if not used & {*one.opts, *one.secondary_opts}] == []


def test_the_list_of_commands() -> None:
    """The help of the program names the server's URL, and has one line for each command."""
    text = run_command("--help", COLUMNS="80").stdout.decode()
    assert "BLOOMREDIS_URL" in text
    rows = re.findall(r"^  ([a-z]+) {2,}(.+)\.$", text, re.MULTILINE)
    assert [name for name, _ in rows] == list(COMMANDS)


PARSED = [
    (name, one)
    for name, command in COMMANDS.items()
    for one in command.params
    if one.metavar in ("N", "ITEMS", "RATE", "TIME", "SECONDS", "KIND")
]


def test_wrong_values_are_told_in_words() -> None:
    """The error of a wrong value never uses the validator's wording."""
    assert len(PARSED) > 30
    for name, one in PARSED:
        given = (one.opts[0], "x%") if one.param_type_name == "option" else ("name", "x%")
        done = run_command(name, *given)
        text = " ".join(done.stderr.decode().replace("│", " ").split())
        assert done.returncode == 2
        assert f"Invalid value for '{one.opts[0] if given[0] != 'name' else one.metavar}'" in text
        assert not re.search("Value error|Input should|unable to parse", text), text


def test_no_option_is_left_to_the_parser() -> None:
    """Every option with a value has a reader of its own, so that typer's parser reports no error."""
    plain = {
        (name, one.opts[0])
        for name, command in COMMANDS.items()
        for one in command.params
        if one.param_type_name == "option" and one.metavar is None and one.opts[0] not in FLAGS
    }
    assert plain == set()


FLAGS = {
    "--trial",
    "--yes",
    "--cluster",
    "--json",
    "--count",
    "--csv",
    "--ignore-case",
    "--null",
    "--repeated",
    "--keep-cr",
    "--restart",
    "--take-over",
    "--once",
    "--file",
    "--help",
}


def test_numbers() -> None:
    """Numbers may be written as people write them."""
    read = options.whole()
    for text in ("1000000", "1_000_000", "1,000,000", "1e6", "1E6", "1M", "1000k", "1.0e6"):
        assert read(text) == 1_000_000
    assert read("1.5M") == 1_500_000
    for text in (
        "",
        "x",
        "-1",
        "0",
        "1.5",
        "1e99",
        "1e6M5",
        "1,5M",
        "1,0",
        "2,5e6",
        "1,000M",
        "1,00",
        "1__0",
        "1_",
    ):
        with pytest.raises(ValueError, match="expected"):
            read(text)
    assert [options.share(text) for text in ("0.01", "1%", "1e-2", "0.1%")] == [0.01, 0.01, 0.01, 0.001]
    assert options.kind("scaling") is Kind.SCALING


def test_a_url_without_a_scheme() -> None:
    """The error of a URL without a scheme suggests the URL that was meant."""
    done = run_command("info", "x", "--url", "127.0.0.1:17001")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"redis://127.0.0.1:17001" in done.stderr


def test_a_missing_password() -> None:
    """A missing password is reported as the library does, with the option that takes it."""
    with running(binaries()["redis-8"]) as server:
        with server.client() as client:
            client.config_set("requirepass", "hunter2")
        for command in (["info", "x"], ["doctor"], ["list"], ["dedupe", "--name", "x"]):
            done = run_command(*command, "--url", server.url)
            assert done.returncode == 3
            assert b"redis://user:password@host" in done.stderr
        with redis.Redis.from_url(server.url, password="hunter2") as client:  # noqa: S106 - made up
            client.config_set("requirepass", "")


def test_a_file_that_cannot_be_written(any_server: Server) -> None:
    """The message has the file name as it was given, and no error number."""
    url = ("--url", any_server.url)
    run_command("create", "seen", *url, "--capacity", 10, "--error-rate", 0.1)
    done = run_command("save", "seen", "/nonexistent/x", *url)
    assert (done.returncode, done.stderr) == (2, b"bloomredis: /nonexistent/x: No such file or directory\n")


def test_a_warning_of_the_library(any_server: Server) -> None:
    """A warning of the library becomes one of the command, with the command's name and options."""
    url = ("--url", any_server.url)
    run_command("create", "seen", *url, "--capacity", 10, "--error-rate", 0.1)
    done = run_command("add", "seen", *url, data=b"".join(b"%d\n" % i for i in range(100)))
    assert done.stderr.startswith(b"bloomredis: warning: 'seen' is full")
    assert b"to let it grow, run `bloomredis adopt`, and use --kind scaling" in done.stderr


FAILURES = {
    "Error 111 connecting to 127.0.0.1:1. Connection refused.": "is a server running there",
    "Timeout connecting to server": "rediss:// is for ports with TLS",
    "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed": "?ssl_ca_certs=",
    "Error -2 connecting to nosuch:1. Name or service not known.": "no machine has the host name",
}


@for_each(("text", "way_out"), FAILURES.items())
def test_a_client_that_says_no_way_out(text: str, way_out: str) -> None:
    """For an error of a client without advice, the command adds what to do."""
    assert way_out in stderr.described(replies.explained(redis.ConnectionError(text)))


@pytest.mark.lint
def test_each_way_out_names_what_exists() -> None:
    """What errors advise a user of the command names only existing commands and options."""
    for row in rows():
        assert unknown(row.command if row.command != row.advice else "") == []


def use_lost(client: redis.Redis) -> None:
    """Use a filter that was deleted."""
    made = bloomredis.BloomFilter(client, "seen", capacity=77, error_rate=0.02)
    made.add("x")
    client.flushall()
    made.add("y")


ERRORS: dict[str, tuple[Callable[[redis.Redis], object], str]] = {
    "missing": (lambda client: bloomredis.BloomFilter.open(client, "x"), "bloomredis create makes one"),
    "lost": (use_lost, "`bloomredis clear` starts empty"),
}


@for_each(("fail", "words"), ERRORS.values())
def test_commands_not_python(fail: Callable[[redis.Redis], object], words: str) -> None:
    """The way out of an error is a command, not a call."""
    with pytest.raises(bloomredis.BloomError) as caught:
        fail(connect("memory://"))
    text = stderr.described(caught.value)
    assert words in text
    assert "()" not in text
