"""Lua code as short as the server understands it: without comments and blanks, and with short names."""

from __future__ import annotations

import itertools
import re
import string
from collections import Counter
from collections.abc import Iterator
from typing import Final

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
    """Return minified code with short names in the place of its local ones, and without blanks around signs.

    A name is replaced everywhere, so scopes do not matter; one that is a key in a table too stays as it is.
    """
    names = Counter(token["name"] for token in _TOKEN.finditer(text) if token["name"])
    local = {name for found in _DECLARED.findall(text) for name in re.findall(r"\w+", "".join(found))}
    local -= set(_keys(text))
    free = (name for name in _short_names() if name not in names)
    short = {name: next(free) for name, _ in names.most_common() if name in local}
    return _TOKEN.sub(lambda token: short.get(token[0], token[0].strip(" ") or token[0]), text)


def _keys(text: str) -> Iterator[str]:
    """Yield the names that are keys in a table, and some others."""
    while "{" in text:
        for inner in _BRACES.findall(text):
            yield from re.findall(r"(\w+) =(?!=)", inner)
        text = _BRACES.sub("", text)


def _short_names() -> Iterator[str]:
    """Yield names of one letter, then of two."""
    for length in (1, 2):
        yield from map("".join, itertools.product(string.ascii_letters, repeat=length))
