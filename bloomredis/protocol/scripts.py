"""The Lua scripts: one file per verb in the folders of lua/, assembled with its includes.

``-- include: name`` inserts lua/include/name.lua, once per script, after the files that it includes itself.
``-- include: one or other`` inserts `one` for filters of several layers and `other` for all others.
``-- include: one or other or third`` inserts `third` for filters in a key of the server's module.
``-- paste: name`` inserts a piece of code each time, where a function call would cost more.

A wheel carries the directory as `bloomredis/lua`; a checkout and an editable install have it beside
the package.  The installed directory is preferred, so that a stray `lua` beside the package is never used.
"""

from __future__ import annotations

import itertools
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, overload

from bloomredis.protocol.forms import Form, anything
from bloomredis.protocol.steps import Reply

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_INCLUDE = re.compile(r"^-- include: (\w+)(?: or (\w+))?(?: or (\w+))?\n", re.MULTILINE)
_PASTE = re.compile(r"^ *-- paste: (\w+)\n", re.MULTILINE)
IN_BLOCKS: Final = "_blocks"
"""The suffix of scripts for filters of one layer in the blocked layout.

The first call in each of a caller's pipelines carries the whole script, so local names are shortened too.
"""


@dataclass(frozen=True, slots=True)
class Script(Generic[R_co]):
    """A script as the server gets it: its text, and the SHA-1 that EVALSHA names it by.

    :ivar form: parses the script's replies to an R_co.
    """

    verb: str
    text: str
    sha: str
    form: Form[R_co]


def directory() -> Traversable:
    """Return the directory of the scripts."""
    installed = files("bloomredis") / "lua"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "lua"


def verbs() -> Iterable[str]:
    """Return the names of all scripts."""
    return _sources(readable=False)[0].keys()


@overload
def load_script(verb: str, *, layered: bool = False, module: bool = False) -> Script[Reply]: ...
@overload
def load_script(verb: str, form: Form[R], *, layered: bool = False, module: bool = False) -> Script[R]: ...
@cache
def load_script(
    verb: str, form: Form[Any] = anything, *, layered: bool = False, module: bool = False
) -> Script[Any]:
    """Return a script as the server gets it; `FileNotFoundError` if no script has that name.

    :param form: parses its replies; `anything` if the caller parses them.
    :param layered: return the script for filters of several layers, which costs some 2 us more a call.
    :param module: return the script for filters in a key of the server's module.
    """
    text = assemble(verb, layered=layered, module=module, readable=False)
    if verb.endswith(IN_BLOCKS):
        text = with_short_names(text)
    verb = verb.removesuffix(IN_BLOCKS)
    return Script(verb, text, sha1(text.encode(), usedforsecurity=False).hexdigest(), form)


def assemble(verb: str, *, layered: bool = False, module: bool = False, readable: bool = True) -> str:
    """Return the text of a script with its includes and pastes inserted."""
    scripts, parts = _sources(readable=readable)
    if verb not in scripts:
        raise FileNotFoundError(f"there is no script {verb!r}")
    included: set[str] = set()

    def include(found: re.Match[str]) -> str:
        one, other, third = found.groups()
        name = (module and third) or (one if layered else other or one)
        if name in included:
            return ""
        included.add(name)
        return whole(parts[name])

    def whole(text: str) -> str:
        pasted = _PASTE.sub(lambda found: whole(parts[found[1]]), text)
        return _INCLUDE.sub(include, pasted)

    return whole(scripts[verb])


@cache
def _sources(*, readable: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Read all files; return the scripts by verb, and the includes and pastes by name."""
    scripts: dict[str, str] = {}
    parts: dict[str, str] = {}
    for folder in directory().iterdir():
        if folder.is_dir():
            found = parts if folder.name == "include" else scripts
            for entry in folder.iterdir():
                if entry.name.endswith(".lua"):
                    text = entry.read_text("utf-8")
                    found[entry.name.removesuffix(".lua")] = text if readable else minified(text)
    return scripts, parts


_STRING: Final = r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\[(?P<level>=*)\[.*?\](?P=level)\]"""

_BLANKS: Final = re.compile(
    rf"""(?P<kept>{_STRING})"""
    r"""|(?P<ends>(?:[ \t]*(?:--(?!\[=*\[|[ ](?:include|paste):)[^\n]*)?\n)+[ \t]*)"""
    r"""|(?P<unknown>--\[|["'])""",
    re.DOTALL,
)
"""A string, or the ends of lines with comments, blank lines and indentation."""

_TOKEN: Final = re.compile(
    rf"""(?P<string>{_STRING})|(?P<name>[A-Za-z_]\w*)|(?P<number>\d[\w.]*)|(?P<dots>\.\.\.)"""
    r"""|(?<!\d)[ ]?(?P<concatenation>\.\.)[ ]?(?![\d.])|(?P<field>[.:][A-Za-z_]\w*)"""
    r"""|(?<!-)[ ]?(?P<minus>-)[ ]?(?! ?-)|[ ]?(?P<sign>[=~<>]=|[=<>,(){}+*/%])[ ]?|(?P<other>.)""",
    re.DOTALL,
)
_DECLARED: Final = re.compile(
    r"\b(?:local|for) (?:function )?(\w+(?:, \w+)*(?:\([\w, ]*)?)|\bfunction\(([\w, ]*)"
)
_BRACES: Final = re.compile(r"\{([^{}]*)\}")


def minified(text: str) -> str:
    """Return Lua code without comments, indentation and blank lines; `ValueError` for a long comment."""

    def shortened(token: re.Match[str]) -> str:
        if token["unknown"]:
            raise ValueError(f"a long comment or an unfinished string: {text[token.start() :][:40]!r}")
        return token["kept"] or "\n"

    return _BLANKS.sub(shortened, text + "\n").lstrip("\n")


def with_short_names(text: str) -> str:
    """Return minified code with short local names and without blanks around signs.

    A name is replaced in every scope.  A name that is also a key in a table is not replaced.
    """
    names = Counter(token["name"] for token in _TOKEN.finditer(text) if token["name"])
    local = {name for found in _DECLARED.findall(text) for name in re.findall(r"\w+", "".join(found))}
    local -= set(_keys(text))
    free = (name for name in _short_names() if name not in names)
    short = {name: next(free) for name, _ in names.most_common() if name in local}
    return _TOKEN.sub(lambda token: short.get(token[0], token[0].strip(" ") or token[0]), text)


def _keys(text: str) -> Iterator[str]:
    """Yield the names that are keys in a table; the result may contain other names as well."""
    while "{" in text:
        for inner in _BRACES.findall(text):
            yield from re.findall(r"(\w+) =(?!=)", inner)
        text = _BRACES.sub("", text)


def _short_names() -> Iterator[str]:
    """Yield names of one letter, then of two."""
    for length in (1, 2):
        yield from map("".join, itertools.product(string.ascii_letters, repeat=length))
