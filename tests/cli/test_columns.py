"""The columns that `dedupe` compares (of CSV, keys of JSON lines), and inputs that are not lines."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

from bloomredis.cli import inputs
from bloomredis.cli.columns import Columns, fields, keys_by
from tests.support.commands import printed, run_command
from tests.support.servers import Server
from tests.support.values import for_each

URL = ("--url", "memory://")


def test_csv() -> None:
    """A comma inside quotes separates nothing; --delimiter sets another character."""
    data = b'1,"x,y"\n2,"x,y"\n3,x\n4,"x"\n'
    assert printed("dedupe", *URL, "--csv", "--field", 2, data=data) == b'1,"x,y"\n3,x\n'
    data = data.replace(b",", b";")
    options = ("--csv", "--field", 2, "--delimiter", ";")
    assert printed("dedupe", *URL, *options, data=data) == b'1;"x;y"\n3;x\n'


def test_a_newline_between_quotes() -> None:
    """It is a part of its record, also where a batch ends in it, and the record is printed as it was."""
    data = b'1,"x\ny"\n2,"x\ny"\n3,x\n4,"y""\n"\n5,"y""\n"'
    kept = b'1,"x\ny"\n3,x\n4,"y""\n"\n'
    assert printed("dedupe", "--csv", "--field", 2, data=data) == kept


def test_a_record_in_two_batches() -> None:
    """A record that a batch does not complete is one of the next batch."""
    columns = Columns(keys_by(fields("2"), None, (), is_csv=True))
    _, batches = columns.records(iter([[b'1,"x'], [b'y"', b"2,x"]]))
    assert [record for batch in batches for record in batch] == [b'1,"x\ny"', b"2,x"]


def test_csv_that_cannot_be_read() -> None:
    """A quote that never ends is an error, after the records before it are printed."""
    done = run_command("dedupe", *URL, "--csv", "--field", 2, data=b'1,x\n1,"y\n2,z\n')
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"1,x\n", 1)
    assert b"--csv cannot read" in done.stderr


def test_columns_by_name(tmp_path: Path) -> None:
    """Names are found in the header of each file; the first header is printed, and none is counted."""
    (tmp_path / "one").write_bytes(b'id,day,"the text"\n1,mo,x\n1,mo,y\n1,tu,x\n')
    (tmp_path / "two").write_bytes(b"day,id\nmo,1\nwe,1\n")
    (tmp_path / "none").write_bytes(b"")
    files = [tmp_path / name for name in ("none", "one", "two")]
    done = printed("dedupe", "--csv", "--field", "id,day", *files)
    assert done == b'id,day,"the text"\n1,mo,x\n1,tu,x\nwe,1\n'
    assert (
        printed("dedupe", "--csv", "-f", "id,day", "--count", *files)
        == b"read     5\nnew      3\nmissing  0\n"
    )
    assert printed("dedupe", "--csv", "-f", "the text", files[1]) == b'id,day,"the text"\n1,mo,x\n1,mo,y\n'
    assert printed("dedupe", "--csv", "-f", "id", "-D", files[1]) == b'id,day,"the text"\n1,mo,y\n1,tu,x\n'


def test_a_column_that_no_header_has() -> None:
    """The error lists the names that the header has."""
    done = run_command("dedupe", "--csv", "--field", "id,nonsense", data=b"id,day\n1,mo\n")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert b"no column is called nonsense; the header has id, day" in done.stderr


def test_a_header_is_kept_by_each_run(any_server: Server, tmp_path: Path) -> None:
    """In a shared filter it is never marked."""
    (tmp_path / "csv").write_bytes(b"id\n1\n")
    command = ("dedupe", "--url", any_server.url, "--name", "x", "--csv", "--field", "id", tmp_path / "csv")
    assert [printed(*command) for _ in range(2)] == [b"id\n1\n", b"id\n"]


def test_nested_keys() -> None:
    """A key with dots is the whole name or a path; several keys are compared together."""
    data = b'{"user":{"id":1},"a.b":2}\n{"a.b":2,"user":{"id":1,"x":2}}\n{"user":{"id":1},"a.b":3}\n'
    lines = data.splitlines(keepends=True)
    assert printed("dedupe", "--json-key", "user.id", data=data) == lines[0]
    assert printed("dedupe", "--json-key", "user.id", "--json-key", "a.b", data=data) == lines[0] + lines[2]
    done = run_command("dedupe", "--json-key", "user.id.x", data=data)
    assert b"no line has such a column or key" in done.stderr


def test_case_is_ignored() -> None:
    """The first spelling is printed, also beyond ASCII, and of bytes that are no text."""
    data = "Ä b\nä B\nä c\n".encode() + b"\xff\xc4\n\xff\xc4\n"
    assert printed("dedupe", "-i", data=data) == "Ä b\nä c\n".encode() + b"\xff\xc4\n"
    assert printed("dedupe", "-i", "-f", 1, data=data) == "Ä b\n".encode() + b"\xff\xc4\n"


@for_each("server", [(), URL])
def test_repeated_lines(server: tuple[str, ...]) -> None:
    """-D prints each line that awk 'seen[$0]++' prints; a line without the column is not repeated."""
    data = b"a\nb\na\n\na\nb\n\n"
    assert printed("dedupe", *server, "-D", data=data) == b"a\na\nb\n\n"
    assert printed("dedupe", *server, "-D", "--count", data=data) == b"read  7\nnew   3\n"
    done = run_command("dedupe", *server, "-D", "-f", 1, data=data)
    assert (done.stdout, done.returncode) == (b"a\na\nb\n", 0)


def test_lines_that_end_in_nul() -> None:
    """With -z, as find -print0 prints names, a newline and CR LF are parts of a line."""
    assert printed("dedupe", "-z", data=b"a\r\nb\0c\0a\r\nb\0c") == b"a\r\nb\0c\0"


def test_short_options(any_server: Server) -> None:
    """They are those of cut and uniq, alone or together, with or without a blank."""
    data = b"a:1:x\nA:2:x\nb:1:x\n"
    for options in (["-d", ":", "-f", "1,3", "-i"], ["-d:", "-f1,3", "-i"], ["-if1,3", "-d:"]):
        assert printed("dedupe", *options, data=data) == b"a:1:x\nb:1:x\n"


@for_each("text", ["0", "3-1", "-", "", "0-2", "1,,2", "1,0"])
def test_no_list_of_columns(text: str) -> None:
    """A list that cut does not take either is bad usage; a name needs --csv."""
    done = run_command("dedupe", f"--field={text}", data=b"a b\n")
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_name_without_csv() -> None:
    """Only CSV has names."""
    done = run_command("dedupe", "--field", "id", data=b"a b\n")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"names need --csv" in done.stderr


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
    ("options", "words"),
    [
        (("--delimiter", ","), "--delimiter separates columns"),
        (("--csv",), "--csv separates columns"),
        (("--field", "1", "--csv", "--delimiter", ",,"), "one character"),
        (("--field", "1", "--json-key", "id"), "leave out --field"),
    ],
)
def test_options_that_contradict_each_other(options: tuple[str, ...], words: str) -> None:
    """Contradicting options are bad usage."""
    done = run_command("dedupe", *options)
    assert done.returncode == 2
    assert words.encode() in done.stderr


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


UTF_16 = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}


@for_each(("codec", "mark"), UTF_16.items())
def test_utf_16(codec: str, mark: bytes) -> None:
    """UTF-16, as PowerShell writes it, is refused by name before a line is read."""
    data = mark + "a\r\nb\r\n".encode(codec)
    for command in (("dedupe",), ("dedupe", "--json-key", "id"), ("dedupe", "--csv", "-f", 1)):
        done = run_command(*command, data=data)
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"UTF-16, not lines: iconv -f UTF-16 -t UTF-8 FILE | bloomredis" in done.stderr


def test_a_byte_order_mark(tmp_path: Path) -> None:
    """It is no part of the first line of a file, also if it arrives in pieces, and elsewhere it stays."""
    mark = b"\xef\xbb\xbf"
    (tmp_path / "f").write_bytes(mark + b"a\nb\n")
    assert (
        printed("dedupe", tmp_path / "f", "-", tmp_path / "f", data=mark + b"b\n" + mark)
        == b"a\nb\n" + mark + b"\n"
    )
    assert b"".join(inputs.text_of(iter([mark[:1], mark[1:2], mark[2:] + b"a"]), "x")) == b"a"
    assert b"".join(inputs.text_of(iter([mark[:2]]), "x")) == mark[:2]
