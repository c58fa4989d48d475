"""The columns that `dedupe` compares (of CSV, keys of JSON lines), and inputs that are not lines."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pytest

from bloomredis.cli.columns import keys_by
from tests.support.commands import printed, run_command
from tests.support.values import for_each

URL = ("--url", "memory://")


def test_csv() -> None:
    """A comma inside quotes separates nothing; --delimiter sets another character."""
    data = b'1,"x,y"\n2,"x,y"\n3,x\n4,"x"\n'
    assert printed("dedupe", *URL, "--csv", "--field", 2, data=data) == b'1,"x,y"\n3,x\n'
    data = data.replace(b",", b";")
    options = ("--csv", "--field", 2, "--delimiter", ";")
    assert printed("dedupe", *URL, *options, data=data) == b'1;"x;y"\n3;x\n'


def test_csv_that_cannot_be_read() -> None:
    """A column that continues on the next line is an error, after the lines before it are printed."""
    done = run_command("dedupe", *URL, "--csv", "--field", 2, data=b'1,"x\ny"\n')
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert b"a quoted column must end on its line" in done.stderr


def test_json_lines() -> None:
    """The value of a key is compared; lines without the key pass, or are treated as --missing says."""
    data = b'{"id": 1, "v": 1}\n{"v": 2, "id": 1}\n{"id": "1"}\n{"id": [1]}\n{"id": [1] }\n'
    data += b'{"v": 1}\nx\n{"v": 1}\n'
    done = run_command("dedupe", *URL, "--json-key", "id", data=data)
    assert done.stdout == b'{"id": 1, "v": 1}\n{"id": [1]}\n{"v": 1}\nx\n{"v": 1}\n'
    assert done.stderr == b"bloomredis: warning: lines that were kept without the column or key: 3 of 8\n"
    done = run_command("dedupe", *URL, "--json-key", "id", "--missing", "drop", data=data)
    assert done.stdout == b'{"id": 1, "v": 1}\n{"id": [1]}\n'
    assert b"that were dropped without the column or key: 3 of 8" in done.stderr


@for_each("option", [("--json-key", "ID"), ("--field", 9)])
def test_a_column_that_no_line_has(option: tuple[str, object]) -> None:
    """A misspelt key does not switch deduplication off in silence."""
    done = run_command("dedupe", *URL, *option, data=b'{"id": 1}\n' * 2)
    assert (done.returncode, done.stdout) == (2, b'{"id": 1}\n' * 2)
    assert b"no line has such a column or key; all 2 were kept: is it misspelt?" in done.stderr
    assert run_command("dedupe", *URL, *option).returncode == 0


@for_each(
    ("one", "other"),
    [
        (b"1e400", b"1e500"),
        (b"9007199254740993.0", b"9007199254740992.0"),
        (b"true", b'"true"'),
        (b'["a"]', b'"[\\"a\\"]"'),
        (b"[1e400]", b"[1e401]"),
        (b"[1.5]", b'["1.5"]'),
        (b'{"a":12345678901234567890.1}', b'{"a":12345678901234567890.2}'),
        (b"0", b"-0"),
        (b"[" * 100_000, b"1"),
    ],
)
def test_different_json_values_are_different(one: bytes, other: bytes) -> None:
    """Though they are the same float, or one is the other's text; a value that is nested too deep passes."""
    data = b'{"id":%b}\n{"id":%b}\n' % (one, other)
    assert run_command("dedupe", *URL, "--json-key", "id", data=data).stdout == data


@for_each(
    ("column", "options", "words"),
    [
        (None, {"delimiter": ","}, "--delimiter separates columns"),
        (None, {"is_csv": True}, "--csv separates columns"),
        (1, {"delimiter": ",,", "is_csv": True}, "one character"),
        (1, {"json_key": "id"}, "leave out --field"),
    ],
)
def test_options_that_contradict_each_other(
    column: int | None, options: dict[str, object], words: str
) -> None:
    """Contradicting options are bad usage."""
    with pytest.raises(ValueError, match=words):
        keys_by(column, **({"delimiter": None, "json_key": None, "is_csv": False} | options))  # type: ignore[arg-type]


COMPRESSED = {
    "zcat": gzip.compress(b"a\nb\n"),
    "xzcat": lzma.compress(b"a\nb\n"),
    "bzcat": bz2.compress(b"a\nb\n"),
    "zstdcat": b"\x28\xb5\x2f\xfd\x24\x04",
}


@for_each(("program", "data"), COMPRESSED.items())
def test_compressed_input(program: str, data: bytes, tmp_path: Path) -> None:
    """Compressed input is refused before a line is marked, and the error names a program that unpacks it."""
    path = tmp_path / "nums"
    path.write_bytes(data)
    for done, file in (
        (run_command("dedupe", *URL, "--count", path), str(path)),
        (run_command("dedupe", *URL, "--count", data=data), "FILE"),
    ):
        assert (done.returncode, done.stdout) == (2, b"")
        assert f"{program} {file} | bloomredis".encode() in done.stderr
