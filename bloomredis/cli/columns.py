"""The keys that lines are compared by: a column, or the value of a JSON key.

Each function takes lines and returns their keys, None for a line without a key.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable
from typing import Any, Final

from bloomredis.cli.lines import Keys

_LONGEST: Final = 2**31 - 1  # the longest field that the csv module accepts


def keys_by(field: int | None, delimiter: str | None, json_key: str | None, *, is_csv: bool) -> Keys | None:
    """Return the function that the options select, None for whole lines.  Raises `ValueError`."""
    if json_key is not None:
        if field is not None or delimiter is not None or is_csv:
            raise ValueError("--json-key is for lines of JSON: leave out --field, --delimiter and --csv")
        return _json(json_key)
    if field is None:
        for option, given in (("--delimiter", delimiter is not None), ("--csv", is_csv)):
            if given:
                raise ValueError(f"{option} separates columns, so it needs --field")
        return None
    if delimiter == "":
        raise ValueError("--delimiter must not be empty")
    separator = None if delimiter is None else delimiter.replace(r"\t", "\t")
    if is_csv:
        return _csv(field, separator or ",")
    if separator is None:
        return _blank_separated(field)
    return _separated(field, separator.encode(errors="surrogateescape"))


def _blank_separated(field: int) -> Keys:
    """Split as awk does: at runs of spaces and tabs, ignoring those at the start."""
    # The pattern matches every line; it is possessive, so that missing columns cost no backtracking.
    match = re.compile(rb"[ \t]*+(?:[^ \t]++[ \t]*+){0,%d}+([^ \t]*+)" % (field - 1)).match
    return lambda lines: [found[1] or None for found in map(match, lines) if found]


def _separated(field: int, delimiter: bytes) -> Keys:
    def column(line: bytes) -> bytes | None:
        columns = line.split(delimiter, field)
        return columns[field - 1] if len(columns) >= field else None

    return lambda lines: map(column, lines)


def _csv(field: int, delimiter: str) -> Keys:
    """Return a reader that uses the csv module; a quoted column must end on its line."""
    if len(delimiter) != 1:
        raise ValueError(f"--csv takes a --delimiter of one character, not {delimiter!r}")
    csv.field_size_limit(_LONGEST)

    def column(line: bytes) -> bytes | None:
        text = line.decode(errors="surrogateescape").removesuffix("\r")
        try:
            columns = next(csv.reader([text], delimiter=delimiter, strict=True), [])
        except csv.Error as error:
            raise ValueError(
                f"--csv cannot read {text[:60]!r}: {error}; a quoted column must end on its line"
            ) from None
        return columns[field - 1].encode(errors="surrogateescape") if len(columns) >= field else None

    return lambda lines: map(column, lines)


_NO_TEXT: Final = b"\xff"
"""The first byte of items that are no strings or numbers; no text has it."""


def _json(key: str) -> Keys:
    """Return a reader of a JSON key: the item is a string or number as text, and any other value as JSON."""

    def value(line: bytes) -> bytes | None:
        try:
            found = json.loads(line, parse_float=_Number, parse_int=_Number)
            return _item(found.get(key)) if isinstance(found, dict) else None
        except (ValueError, RecursionError):
            return None

    def values(lines: Iterable[bytes]) -> Iterable[bytes | None]:
        return map(value, lines)

    return values


class _Number(str):
    """The text of a number, since two texts may be the same float."""

    __slots__ = ()


def _item(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    return _NO_TEXT + _text(value).encode()


def _text(value: Any) -> str:
    """Return the JSON of a value, with its numbers as they were written."""
    if isinstance(value, _Number):
        return value
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{_text(key)}:{_text(each)}' for key, each in sorted(value.items()))}}}"
    return json.dumps(value)
