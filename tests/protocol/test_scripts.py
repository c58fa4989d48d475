"""The Lua files: correct header comments, assembly, and loading from any installation."""

from __future__ import annotations

import hashlib
import re
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

from bloomredis.protocol import scripts
from tests.support.bytecode import compiled
from tests.support.usual import head_of, usual_calls, with_head
from tests.support.values import for_each

ROOT = Path(__file__).parents[2]
LUA = ROOT / "lua"
FILES = {path.stem: path for path in LUA.glob("*/*.lua") if path.parent.name != "pieces"}
INCLUDES = {name: path.read_text() for name, path in FILES.items() if path.parent.name == "include"}
PIECES = scripts.sources().pieces
VERBS = sorted(scripts.verbs())
SCRIPTS = [(verb, variant) for verb in VERBS for variant in scripts.variants(verb)]
GLOBALS = {
    *("redis", "KEYS", "ARGV", "cmsgpack", "string", "table", "math", "_G", "rawget"),
    *("type", "tonumber", "tostring", "ipairs", "unpack", "select", "pcall", "error"),
}
MOST_BYTES = 24 * 1024
MOST_REGISTERS = 200
"""Some below the limit of Lua, 250."""


def defined(text: str) -> list[str]:
    """Return the top-level constants and functions of a text, with repeats."""
    lines = re.findall(r"^local (?:function )?(\w+(?:, \w+)*)", text, re.MULTILINE)
    return [name for line in lines for name in line.split(", ")]


SHARED = {name: set(defined(text)) for name, text in INCLUDES.items()}


def inserted(how: str, text: str) -> set[str]:
    """Return the names on the lines of a text that insert others."""
    return set(re.findall(rf"^ *-- {how}: (\w+)$", text, re.MULTILINE))


def needed(text: str) -> set[str]:
    """Return the includes of a file, and theirs."""
    own = inserted("include", text)
    return own.union(*(needed(INCLUDES[name]) for name in own))


def code(text: str) -> str:
    """Return a text without comments and strings."""
    return re.sub(r"--.*|'[^']*'", "", text)


def uses(text: str) -> set[str]:
    """Return the constants that a text uses, and the functions that it calls."""
    return set(re.findall(r"(?<![\w.:])(?:[A-Z][A-Z_]+\b|\w+(?=\())", text))


def test_the_verbs() -> None:
    """Every script of the folders is found by its verb, and no name is used twice."""
    paths = [*LUA.glob("**/*.lua")]
    assert set(FILES) - set(INCLUDES) == set(VERBS)
    assert len({path.stem for path in paths}) == len(paths)
    assert sum(path.read_text().count("-- piece: ") for path in paths) == len(PIECES)


@for_each("verb", VERBS)
def test_documented_slots_are_those_read(verb: str) -> None:
    """The header comment of a script names exactly the KEYS and ARGV slots that it and its pieces read."""
    text = FILES[verb].read_text()
    used = [PIECES[scripts.COMMON, name] for name in inserted("rare", text) & {"unusual"}]
    used += [PIECES[scripts.CAPPED, name] for name in inserted("paste", text) & {"admit"}]
    lines = [line for each in (text, *used) for line in each.splitlines()]
    slot = re.compile(r"(?:KEYS|ARGV)\[[^\]]+\]")
    comments = {found for line in lines if line.startswith("--") for found in slot.findall(line)}
    body = "\n".join(line for line in lines if not line.startswith("--"))
    read = {re.sub(r"done\[j\]", "i", each) for each in slot.findall(body.replace("done[j]", "i"))}
    read |= {"KEYS[1]"} if re.search(r"\bKEYS\b(?!\[)", body) else set()
    assert comments == read
    assert any(line.startswith("-- Reply: ") for line in lines)


@for_each("name", INCLUDES)
def test_includes_touch_no_slots(name: str) -> None:
    """Only the verbs and their pieces read KEYS and ARGV."""
    assert not re.search(r"\b(KEYS|ARGV)\b", INCLUDES[name])


@for_each("piece", PIECES)
def test_only_the_caller_of_a_piece_may_be_inside_a_block(piece: tuple[str, str]) -> None:
    """A piece that includes is pasted outside blocks or is rare: else its functions might be out of scope."""
    if inserted("include", PIECES[piece]):
        texts = [path.read_text() for path in LUA.glob("**/*.lua")]
        assert not any(re.search(rf"^ +-- paste: {piece[1]}$", text, re.MULTILINE) for text in texts)


class Recording(dict[Any, str]):
    """A dictionary that records which values are read."""

    def __init__(self, *values: Any) -> None:
        super().__init__(*values)
        self.read: set[Any] = set()

    def __getitem__(self, key: Any) -> str:
        self.read.add(key)
        return super().__getitem__(key)


def test_every_piece_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every piece is in a script, and every include too."""
    sources = scripts.sources()
    pieces, includes = Recording(sources.pieces), Recording(sources.includes)
    recording = sources._replace(pieces=pieces, includes=includes)  # a public method of tuples
    monkeypatch.setattr(scripts, "sources", lambda: recording)
    for verb, variant in SCRIPTS:
        scripts.assemble(verb, variant)
    assert (set(pieces), set(includes)) == (pieces.read, includes.read)


def test_includes_depend_on_each_other_in_one_direction() -> None:
    """No include needs itself, directly or through others."""
    needs = {name: inserted("include", text) for name, text in INCLUDES.items()}
    assert list(TopologicalSorter(needs).static_order())


@for_each("name", INCLUDES)
def test_an_include_includes_what_it_uses(name: str) -> None:
    """Every constant and function of another include is defined by one that the file names."""
    own = set(defined(code(INCLUDES[name]))).union(*(SHARED[need] for need in needed(INCLUDES[name])))
    assert not (uses(code(INCLUDES[name])) & set().union(*SHARED.values())) - own


@for_each(("verb", "variant"), SCRIPTS)
def test_no_unknown_names(verb: str, variant: scripts.Variant) -> None:
    """Every name is a local or a global of the server; another would fail, perhaps in a rare branch."""
    for text in (scripts.assemble(verb, variant), scripts.load_script(verb, variant=variant).text):
        found = compiled(text)
        assert found.read <= GLOBALS
        assert not found.written  # on some servers a script that assigns a global breaks later ones
        assert found.registers < MOST_REGISTERS


@for_each(("verb", "variant"), SCRIPTS)
def test_the_server_gets_code_alone(verb: str, variant: scripts.Variant) -> None:
    """No line is blank, a comment or indented, and the SHA-1 is that of this text."""
    script = scripts.load_script(verb, variant=variant)
    for line in script.text.splitlines():
        assert line == line.lstrip() != ""
        assert "--" not in line
    assert script.sha == hashlib.sha1(script.text.encode(), usedforsecurity=False).hexdigest()
    assert len(script.text) <= MOST_BYTES


@for_each("path", [*LUA.glob("**/*.lua")])
def test_no_string_has_two_dashes_or_an_end_of_line(path: Path) -> None:
    """So every two dashes begin a comment, and every blank at an end of a line may go."""
    text = path.read_text()
    for line in text.splitlines():
        before = line.partition("--")[0]
        assert before.count("'") % 2 == before.count('"') % 2 == 0
    assert not re.search(r"\[=*\[|\t", text)


@pytest.mark.lint
@for_each("path", [*LUA.glob("**/*.lua")])
def test_a_line_has_at_most_120_columns(path: Path) -> None:
    """A line of a file; in a script it may be indented further."""
    assert max(map(len, path.read_text().splitlines())) <= 120


@pytest.mark.lint
def test_each_verb_lists_the_commands_of_its_usual_call() -> None:
    """`python -m tests.support.usual` renews the lists; a server without the module shows none of its."""
    called = usual_calls()
    for verb in VERBS:
        variant = scripts.variants(verb)[0]
        if not verb.startswith("module"):
            assert called[verb, variant]
        if (verb, variant) in called:
            text = FILES[verb].read_text()
            assert text == with_head(text, head_of(variant, called[verb, variant]))


@for_each(("verb", "most"), [("add", 11_500), ("contains", 5800)])
def test_what_a_pipeline_sends_along_is_short(verb: str, most: int) -> None:
    """The first call in each of a caller's pipelines carries the whole text."""
    assert len(scripts.load_script(verb, variant=("one", "blocks")).text) <= most


def test_few_files_know_the_form_of_a_receipt() -> None:
    """`call:reply;` and the call's name occur in two includes and two pieces, and in one file in Python."""
    form = re.compile(r"\bBEGUN\b|'[:;]'|':\S*;'|'\^%d|\[\^;\]")
    verbs, includes, pieces = scripts.sources()
    lua = [*verbs.items(), *includes.items(), *((name, text) for (_, name), text in pieces.items())]
    found = {name for name, text in lua if form.search(re.sub("--.*", "", text))}
    assert found == {"format", "read_receipt", "receipt_text", "session"}
    form = re.compile(r"receipt:\"|\\\.\[0-9a-f\]|\}\.\{.*:08x")
    python = {path.name for path in (ROOT / "bloomredis").glob("**/*.py") if form.search(path.read_text())}
    assert python == {"receipts.py"}


def test_a_variant_has_no_code_of_others() -> None:
    """Scripts for other filters have no code for layers, and a blocked filter's have none for bits."""
    layers, one = (scripts.assemble("add", variant) for variant in (("layers", "blocks"), ("one", "blocks")))
    assert "ROTATING" in layers
    assert not re.search("ROTATING|SETBIT', key, string", one)


def test_a_verb_may_have_a_variant_for_the_store_alone() -> None:
    """The script of a filter is the variant of its store and layout, or of its store, or the only one."""
    variant = ("layers", "blocks")
    assert scripts.load_script("add", variant=variant).variant == variant
    assert scripts.load_script("add_count", variant=variant).variant == ("layers",)
    assert scripts.load_script("delete", variant=variant).variant == ()


@for_each(("verb", "variant"), [("subtract", ()), ("numbers", ()), ("add", ()), ("add", ("one",))])
def test_an_unknown_script(verb: str, variant: scripts.Variant) -> None:
    """The error names the verb; includes are not verbs, and a verb with variants has no text without one."""
    with pytest.raises(FileNotFoundError, match=verb):
        assert scripts.load_script(verb, variant=variant).text
