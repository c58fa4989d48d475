"""The Lua files: correct header comments, assembly, minifying, and loading from any installation."""

from __future__ import annotations

import hashlib
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from bloomredis.protocol import scripts
from bloomredis.protocol.scripts import minified, with_short_names
from tests.support.values import for_each

ROOT = Path(__file__).parents[2]
FILES = {path.stem: path for path in (ROOT / "lua").glob("*/*.lua")}
PARTS = {name: path.read_text() for name, path in FILES.items() if path.parent.name == "include"}
PIECES = set(re.findall(r"-- paste: (\w+)", "".join(path.read_text() for path in FILES.values())))
VERBS = sorted(scripts.verbs())
SHORT = ["add_blocks", "contains_blocks"]


def defined(text: str) -> list[str]:
    """Return the top-level constants and functions of a text, with repeats."""
    lines = re.findall(r"^local (?:function )?(\w+(?:, \w+)*)", text, re.MULTILINE)
    return [name for line in lines for name in line.split(", ")]


SHARED = {part: set(defined(PARTS[part])) for part in set(PARTS) - PIECES}


def included(text: str) -> set[str]:
    """Return the names on the include lines of a file."""
    lines = re.findall(r"^-- include: (.+)", text, re.MULTILINE)
    return {name for line in lines for name in line.split(" or ")}


def needed(text: str) -> set[str]:
    """Return the includes of a file, and theirs."""
    return included(text).union(*(needed(PARTS[name]) for name in included(text)))


def code(text: str) -> str:
    """Return a text without comments and strings, with its pieces pasted in."""
    pasted = re.sub(r" *-- paste: (\w+)", lambda piece: PARTS[piece[1]], text)
    return re.sub(r"--.*|'[^']*'", "", pasted if pasted == text else code(pasted))


def uses(text: str) -> set[str]:
    """Return the constants that a text uses, and the functions that it calls."""
    return set(re.findall(r"(?<![\w.:])(?:[A-Z][A-Z_]+\b|\w+(?=\())", text))


def test_the_verbs() -> None:
    """Every script of the folders is found by its verb, and no name is used twice."""
    assert set(FILES) - set(PARTS) == set(VERBS)
    assert len(FILES) == len(list((ROOT / "lua").glob("**/*.lua")))


@for_each("verb", VERBS)
def test_documented_slots_are_those_read(verb: str) -> None:
    """The header comment of a script names exactly the KEYS and ARGV slots that its body reads."""
    lines = FILES[verb].read_text().splitlines()
    slot = re.compile(r"(?:KEYS|ARGV)\[[^\]]+\]")
    comments = {found for line in lines if line.startswith("--") for found in slot.findall(line)}
    body = "\n".join(line for line in lines if not line.startswith("--"))
    read = set(slot.findall(body)) | ({"KEYS[1]"} if re.search(r"\bKEYS\b(?!\[)", body) else set())
    assert comments == read
    assert any(line.startswith("-- Reply: ") for line in lines)


@for_each("part", PARTS)
def test_includes_touch_no_slots(part: str) -> None:
    """Only the verbs read KEYS and ARGV."""
    assert not re.search(r"\b(KEYS|ARGV)\b", PARTS[part])


def test_pieces_include_nothing() -> None:
    """A piece, pasted into the middle of a function, has no includes and is included nowhere."""
    assert not any(included(PARTS[piece]) for piece in PIECES)
    assert not PIECES & set().union(*(included(path.read_text()) for path in FILES.values()))


def test_includes_depend_on_each_other_in_one_direction() -> None:
    """No include needs itself, directly or through others."""
    assert list(TopologicalSorter({name: included(text) for name, text in PARTS.items()}).static_order())


@for_each("name", sorted(set(FILES) - PIECES))
def test_a_file_includes_what_it_uses(name: str) -> None:
    """Every constant and function of an include is defined by an include that the file names."""
    text = FILES[name].read_text()
    own = set(defined(code(text))).union(*(SHARED[need] for need in needed(text)))
    assert not (uses(code(text)) & set().union(*SHARED.values())) - own


@for_each("layered", [False, True])
@for_each("verb", VERBS)
def test_names_are_defined_once_before_they_are_used(verb: str, *, layered: bool) -> None:
    """An include appears once in a script, after what it needs: an unknown name would be nil."""
    text = code(scripts.assemble(verb, layered=layered))
    for name in uses(text) & set().union(*SHARED.values()):
        assert defined(text).count(name) == 1
        definition = re.search(rf"^local .*?\b{name}\b", text, re.MULTILINE)
        assert definition
        assert name not in uses(text[: definition.start()])


@for_each("layered", [False, True])
@for_each("verb", VERBS)
def test_no_globals(verb: str, *, layered: bool) -> None:
    """Everything is local: on some servers a script that assigns a global breaks later ones."""
    for line in scripts.assemble(verb, layered=layered).splitlines():
        assert not re.match(r"(?!local |for )(function|[A-Za-z_][\w, ]*=[^=])", line)


@for_each("layered", [False, True])
@for_each("verb", VERBS)
def test_the_server_gets_code_alone(verb: str, *, layered: bool) -> None:
    """No line is blank, a comment or indented, and the SHA-1 is that of this text."""
    script = scripts.load_script(verb, layered=layered)
    for line in script.text.splitlines():
        assert line == line.lstrip() != ""
        assert "--" not in line
    text = minified(scripts.assemble(verb, layered=layered))
    assert script.text == (with_short_names(text) if verb in SHORT else text)
    assert script.sha == hashlib.sha1(script.text.encode(), usedforsecurity=False).hexdigest()


@for_each(
    ("text", "short"),
    [
        ("-- a\n\n  local x = 1  -- b\n\n\n\treturn x", "local x = 1\nreturn x\n"),
        ("return '-- no comment'  -- it's one", "return '-- no comment'\n"),
        (r"""return '\'--', "\"--", "\\" -- c""", r"""return '\'--', "\"--", "\\" """.rstrip() + "\n"),
        ("return [[ -- a\n\n  b ]]  -- c", "return [[ -- a\n\n  b ]]\n"),
        ("return [==[ ]]\n  -- ]==], a[b[1]]", "return [==[ ]]\n  -- ]==], a[b[1]]\n"),
        ("--[ a comment\nreturn 1 --[=a comment", "return 1\n"),
    ],
)
def test_strings_survive(text: str, short: str) -> None:
    """Comments, indentation and blank lines are removed, except in strings."""
    assert minified(text) == short


@for_each("text", ["--[[ a\nb ]]", "x = 1 --[==[ a ]==]", "return 'a", 'return "a\n"'])
def test_text_that_cannot_be_shortened(text: str) -> None:
    """A long comment or an unfinished string is refused."""
    with pytest.raises(ValueError, match="a long comment or an unfinished string"):
        minified(text)


@for_each("verb", SHORT)
def test_what_a_pipeline_sends_along_is_short(verb: str) -> None:
    """The scripts for the most common calls have at most 5.5 KB."""
    assert len(scripts.load_script(verb).text) <= 5.5 * 1024


@for_each(
    ("text", "short"),
    [
        ("local one, two = 1, 2\nreturn one - two", "local a,b=1,2\nreturn a-b"),
        ("local call = redis.call\ncall('call')", "local a=redis.call\na('call')"),
        ("local key = 1\nreturn { key = key }", "local key=1\nreturn{key=key}"),
        ("local a = b\nlocal long = a", "local c=b\nlocal d=c"),
        ("for _, each in ipairs(all) do each() end", "for b,a in ipairs(all)do a()end"),
        ("local function f(first, ...) return first .. ... end", "local function b(a,...)return a.. ... end"),
        ("return 1 .. 2, x - -1, x - - 1", "return 1 .. 2,x - -1,x - -1"),
        ("local by = text:byte(1):rep(2) .. 3", "local a=text:byte(1):rep(2).. 3"),
    ],
)
def test_short_names(text: str, short: str) -> None:
    """Only local names are replaced, not fields, strings or keys; no meaningful blank is removed."""
    assert with_short_names(text) == short


def test_few_files_know_the_form_of_a_receipt() -> None:
    """`call:reply;` and the call's name occur in four files in Lua, and one in Python."""
    form = re.compile(r"\bBEGUN\b|'[:;]'|':\S*;'|'\^%d|\[\^;\]")
    lua = {name for name, path in FILES.items() if form.search(re.sub("--.*", "", path.read_text()))}
    assert lua == {"format", "read_receipt", "receipt_text", "session"}
    form = re.compile(r"receipt:\"|\\\.\[0-9a-f\]|\}\.\{.*:08x")
    python = {path.name for path in (ROOT / "bloomredis").glob("**/*.py") if form.search(path.read_text())}
    assert python == {"receipts.py"}


def test_only_filters_in_layers_pay_for_layers() -> None:
    """Scripts for other filters have no code for layers."""
    assert "slices_of" in scripts.load_script("add", layered=True).text
    assert "slices_of" not in scripts.load_script("add").text


def test_an_unknown_verb() -> None:
    """The error names the verb; includes are not verbs."""
    for verb in ("subtract", "items"):
        with pytest.raises(FileNotFoundError, match=verb):
            scripts.load_script(verb)
