"""The Lua scripts: one file a verb in lua/, with its includes pasted in.

A wheel carries the directory as `bloomredis/lua`; a checkout and an editable install have it beside
the package.  The installed place is looked at first, so that a stray `lua` beside it is never used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

_INCLUDE = re.compile(r"^ *-- include: (\w+)$", re.MULTILINE)


def directory() -> Traversable:
    """Return the directory of the scripts."""
    installed = files("bloomredis") / "lua"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "lua"


@dataclass(frozen=True, slots=True)
class Script:
    """A verb as the server gets it: its text, and the SHA-1 that EVALSHA names it by."""

    verb: str
    text: str
    sha: str


@cache
def load(verb: str, *, layered: bool = False) -> Script:
    """Read `lua/<verb>.lua` and its includes; `FileNotFoundError` if there is no such verb.

    :param layered: as filters of several layers need it; what others do not need costs them some 2 us a call.
    """
    place = directory()

    def include(match: re.Match[str]) -> str:
        name = "alone" if match[1] == "layers" and not layered else match[1]
        return _INCLUDE.sub(include, (place / "include" / f"{name}.lua").read_text("utf-8"))

    text = _INCLUDE.sub(include, (place / f"{verb}.lua").read_text("utf-8"))
    return Script(verb=verb, text=text, sha=sha1(text.encode(), usedforsecurity=False).hexdigest())


def verbs() -> Iterator[str]:
    """Yield the names of all scripts."""
    return (entry.name.removesuffix(".lua") for entry in directory().iterdir() if entry.name.endswith(".lua"))
