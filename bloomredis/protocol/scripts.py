"""The Lua scripts: one file per verb in the folders of lua/, assembled with its pieces when it is first used.

A verb says what happens to a filter; the pieces in lua/pieces say how, for each store and layout.  A variant
names the folders of a filter's pieces, such as ``("layers", "blocks")``.  Three lines insert code:

``-- include: name`` inserts lua/include/name.lua, functions and constants, once per script.
``-- paste: name`` inserts the piece of the variant, of the verb or of all; nothing if only others have it.
``-- rare: name`` inserts a piece inside a branch: what it includes is defined only if the branch is taken.

A wheel carries the directory as `bloomredis/lua`; a checkout and an editable install have it beside
the package.  The installed directory is preferred, so that a stray `lua` beside the package is never used.
"""

from __future__ import annotations

import itertools
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar, overload

from bloomredis.derived import derived
from bloomredis.later import unforked
from bloomredis.protocol.forms import Form, anything
from bloomredis.protocol.steps import Reply

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Variant = tuple[str, ...]
"""A store and a layout: the folders of a script's pieces, the first before the second."""

CAPPED: Final = "capped"
"""The folder of pieces that let a call stop where the filter has its capacity."""

COMMON: Final = "common"
"""The folder of pieces for every variant."""

_STORED: Final[tuple[Variant, ...]] = (
    ("one", "blocks"),
    ("one", "bits"),
    ("one", "counters"),
    ("layers", "blocks"),
    ("layers", "bits"),
    ("bitmap", "bits"),
    ("bitmaps", "layers", "bits"),
)
_CAPPED: Final[tuple[Variant, ...]] = ((CAPPED, "one", "blocks"), (CAPPED, "one", "bits"))
_VARIANTS: Final[Mapping[str, tuple[Variant, ...]]] = {
    "add": (*_STORED, *_CAPPED),
    "contains": _STORED,
    "claim": (*_STORED, ("module",), *_CAPPED, (CAPPED, "module")),
    "commit": (*_STORED, ("module",)),
    "module_add": ((), (CAPPED, "module")),
    "read_blocks": (("one", "blocks"),),
    "remove": (("one", "counters"),),
    "add_count": (("one",), ("layers",), ("bitmap",), ("bitmaps",), (CAPPED, "one")),
    "or_segment": (("one",), ("layers",), ("bitmap",)),
}
"""The variants of each verb that has pieces."""

_INSERTED: Final = r"(?m)^ *-- (include|paste|rare): (\w+)\n"  # compiled when the first script is assembled


@dataclass(frozen=True)
class Script(Generic[R_co]):
    """A script, whose text is assembled when it is first used.

    :ivar form: parses the script's replies to an R_co.
    """

    verb: str
    form: Form[R_co]
    variant: Variant = ()

    @derived
    def text(self) -> str:
        """The text that the server gets; `FileNotFoundError` if there is no such script."""
        text = assemble(self.verb, self.variant, readable=False)
        return with_short_names(text) if self.variant else text

    @derived
    def sha(self) -> str:
        """The SHA-1 that EVALSHA names the script by."""
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()


def directory() -> Traversable:
    """Return the directory of the scripts."""
    installed = files("bloomredis") / "lua"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "lua"


def verbs() -> Iterable[str]:
    """Return the names of all scripts."""
    return _sources(readable=False).verbs.keys()


def variants(verb: str) -> tuple[Variant, ...]:
    """Return the variants of a verb; one empty variant if it has no pieces."""
    return _VARIANTS.get(verb, ((),))


def every_script() -> Iterator[Script[Reply]]:
    """Yield each variant of each verb."""
    for verb in verbs():
        for variant in variants(verb):
            yield load_script(verb, variant=variant)


@overload
def load_script(verb: str, *, variant: Variant = ()) -> Script[Reply]: ...
@overload
def load_script(verb: str, form: Form[R], *, variant: Variant = ()) -> Script[R]: ...
@cache
def load_script(verb: str, form: Form[Any] = anything, *, variant: Variant = ()) -> Script[Any]:
    """Return the script of a verb.

    :param form: parses its replies; `anything` if the caller parses them.
    :param variant: the variant of the filter.  The verb may have one for its store, or none; and none that
        is capped.
    """
    known = _VARIANTS.get(verb, ())
    folders = (variant, variant[1:]) if variant[:1] == (CAPPED,) else (variant,)
    prefixes = (each[:length] for each in folders for length in range(len(each), 0, -1))
    return Script(verb, form, next((each for each in prefixes if each in known), ()))


class _Sources(NamedTuple):
    """The files of lua/: scripts by verb, includes by name, pieces by folder and name."""

    verbs: dict[str, str]
    includes: dict[str, str]
    pieces: dict[tuple[str, str], str]


def assemble(verb: str, variant: Variant = (), *, readable: bool = True) -> str:
    """Return the text of a script with its includes and pieces inserted."""
    scripts, includes, pieces = _sources(readable=readable)
    if verb not in scripts or variant not in variants(verb):
        raise FileNotFoundError(f"there is no script {verb!r} for the variant {variant}")
    folders, names = (*variant, verb, COMMON), {name for _, name in pieces}

    def piece(name: str) -> str:
        found = (pieces[folder, name] for folder in folders if (folder, name) in pieces)
        if name not in names:
            raise FileNotFoundError(f"there is no piece {name!r}")
        return next(found, "")

    def whole(text: str, included: set[str]) -> str:
        def insert(line: re.Match[str]) -> str:
            how, name = line.groups()
            if how == "paste":
                return whole(piece(name), included)
            if how == "rare":
                return whole(piece(name), {*included})
            if name in included:
                return ""
            included.add(name)
            return whole(includes[name], included)

        return re.sub(_INSERTED, insert, text)

    return whole(scripts[verb], set())


@cache
def _sources(*, readable: bool) -> _Sources:
    """Read all files; importlib imports a part of its own for that."""
    with unforked:
        return _read_sources(readable=readable)


def _read_sources(*, readable: bool) -> _Sources:
    sources = _Sources({}, {}, {})

    def texts(folder: Traversable) -> Iterator[tuple[str, str]]:
        for entry in folder.iterdir():
            if entry.name.endswith(".lua"):
                text = entry.read_text("utf-8")
                yield entry.name.removesuffix(".lua"), text if readable else minified(text)

    for folder in directory().iterdir():
        if folder.name == "pieces":
            for each in folder.iterdir():
                if each.is_dir():
                    sources.pieces.update({(each.name, name): text for name, text in texts(each)})
        elif folder.is_dir():
            (sources.includes if folder.name == "include" else sources.verbs).update(texts(folder))
    return sources


_STRING: Final = r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\[(?P<level>=*)\[.*?\](?P=level)\]"""

_BLANKS: Final = (
    rf"""(?s)(?P<kept>{_STRING})"""
    r"""|(?P<ends>(?:[ \t]*(?:--(?!\[=*\[|[ ](?:include|paste|rare):)[^\n]*)?\n)+[ \t]*)"""
    r"""|(?P<unknown>--\[|["'])"""
)
"""A string, or the ends of lines with comments, blank lines and indentation."""

_TOKEN: Final = (
    rf"""(?s)(?P<string>{_STRING})|(?P<name>[A-Za-z_]\w*)|(?P<number>\d[\w.]*)|(?P<dots>\.\.\.)"""
    r"""|(?<!\d)[ ]?(?P<concatenation>\.\.)[ ]?(?![\d.])|(?P<field>[.:][A-Za-z_]\w*)"""
    r"""|(?<!-)[ ]?(?P<minus>-)[ ]?(?! ?-)|[ ]?(?P<sign>[=~<>]=|[=<>,(){}+*/%])[ ]?|(?P<other>.)"""
)
_DECLARED: Final = r"\b(?:local|for) (?:function )?(\w+(?:, \w+)*(?:\([\w, ]*)?)|\bfunction\(([\w, ]*)"
_BRACES: Final = r"\{([^{}]*)\}"


def minified(text: str) -> str:
    """Return Lua code without comments, indentation and blank lines; `ValueError` for a long comment."""

    def shortened(token: re.Match[str]) -> str:
        if token["unknown"]:
            raise ValueError(f"a long comment or an unfinished string: {text[token.start() :][:40]!r}")
        return token["kept"] or "\n"

    return re.sub(_BLANKS, shortened, text + "\n").lstrip("\n")


def with_short_names(text: str) -> str:
    """Return minified code with short local names and without blanks around signs.

    A name is replaced in every scope.  A name that is also a key in a table is not replaced.
    """
    names = Counter(token["name"] for token in re.finditer(_TOKEN, text) if token["name"])
    local = {name for found in re.findall(_DECLARED, text) for name in re.findall(r"\w+", "".join(found))}
    local -= set(_keys(text))
    free = (name for name in _short_names() if name not in names)
    short = {name: next(free) for name, _ in names.most_common() if name in local}
    return re.sub(_TOKEN, lambda token: short.get(token[0], token[0].strip(" ") or token[0]), text)


def _keys(text: str) -> Iterator[str]:
    """Yield the names that are keys in a table; the result may contain other names as well."""
    while "{" in text:
        for inner in re.findall(_BRACES, text):
            yield from re.findall(r"(\w+) =(?!=)", inner)
        text = re.sub(_BRACES, "", text)


def _short_names() -> Iterator[str]:
    """Yield names of one letter, then of two."""
    for length in (1, 2):
        yield from map("".join, itertools.product(string.ascii_letters, repeat=length))
