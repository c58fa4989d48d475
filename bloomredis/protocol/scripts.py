"""The Lua scripts: one file per verb in the folders of lua/, assembled with its pieces when it is first used.

A verb says what happens to a filter; the pieces in lua/pieces say how, for each store and layout.  A variant
names the files of a filter's pieces, such as ``("layers", "blocks")``.  ``-- piece: name`` begins a piece, in
such a file or below the code of a verb that is its only user.  Three lines insert code:

``-- include: name`` inserts lua/include/name.lua, functions and constants, once per script.
``-- paste: name`` inserts the piece of the variant, of the verb or of all; nothing if only others have it.
``-- rare: name`` inserts a piece inside a branch: what it includes is defined only if the branch is taken.

A wheel carries the directory as `bloomredis/lua`; a checkout and an editable install have it beside
the package.  The installed directory is preferred, so that a stray `lua` beside the package is never used.
"""

from __future__ import annotations

import re
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
"""A store and a layout: the files of a script's pieces, the first before the second."""

CAPPED: Final = "capped"
"""The file of pieces that let a call stop where the filter has its capacity."""

COMMON: Final = "common"
"""The file of pieces for every variant."""

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

# Compiled when the first script is assembled.
_INSERTED: Final = r"(?m)^( *)-- (include|paste|rare): (\w+)\n"
_PIECE: Final = r"(?m)^-- piece: (\w+)\n"
_NO_CODE: Final = r"(?: *(?:--.*)?\n *)+"
"""The ends of lines with comments, blank lines and indentation; no string of a script has two dashes."""


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
        return re.sub(_NO_CODE, "\n", assemble(self.verb, self.variant)).lstrip()

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
    return sources().verbs.keys()


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
    """The texts of lua/: scripts by verb, includes by name, pieces by file and name."""

    verbs: dict[str, str]
    includes: dict[str, str]
    pieces: dict[tuple[str, str], str]


def assemble(verb: str, variant: Variant = ()) -> str:
    """Return the text of a script with its includes and pieces, indented as the lines that insert them."""
    scripts, includes, pieces = sources()
    if verb not in scripts or variant not in variants(verb):
        raise FileNotFoundError(f"there is no script {verb!r} for the variant {variant}")
    files, names = (*variant, verb, COMMON), {name for _, name in pieces}

    def piece(name: str) -> str:
        found = (pieces[file, name] for file in files if (file, name) in pieces)
        if name not in names:
            raise FileNotFoundError(f"there is no piece {name!r}")
        return next(found, "")

    def whole(text: str, included: set[str]) -> str:
        def insert(line: re.Match[str]) -> str:
            indent, how, name = line.groups()
            if how == "include":
                new = includes[name] if name not in included else ""
                included.add(name)
            else:
                new = piece(name)
            new = whole(new, {*included} if how == "rare" else included)
            return re.sub("(?m)^(?=.)", indent, new) if indent else new

        return re.sub(_INSERTED, insert, text)

    return whole(scripts[verb], set())


@cache
def sources() -> _Sources:
    """Read all files; importlib imports a part of its own for that."""
    with unforked:
        return _read_sources()


def _read_sources() -> _Sources:
    made = _Sources({}, {}, {})
    for folder in directory().iterdir():
        for file in folder.iterdir() if folder.is_dir() else ():
            name, _, suffix = file.name.partition(".")
            if suffix == "lua":
                text, *found = re.split(_PIECE, file.read_text("utf-8"))
                pieces = zip(found[::2], found[1::2], strict=True)
                made.pieces.update({(name, piece): code for piece, code in pieces})
                if folder.name != "pieces":
                    (made.includes if folder.name == "include" else made.verbs)[name] = text
    return made
