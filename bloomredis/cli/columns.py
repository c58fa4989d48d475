"""The keys that lines are compared by: columns, or values of JSON keys.

An item of several columns has them as netstrings (`3:abc,`), so that no two lists of columns make one item.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import chain, compress
from typing import Any, Final

Keys = Callable[[list[bytes]], Iterable[bytes | None]]
"""A function from lines to the keys that they are compared by, None for a line without one."""

Key = bytes | int
"""The part of a line that is compared, or the number of a line that passes without a comparison."""

_LONGEST: Final = 2**31 - 1  # the longest field that the csv module accepts


class Fields(tuple[Any, ...]):
    """Columns by their numbers, as slices of a line's columns, or by their names."""

    __slots__ = ()


def fields(text: str) -> Fields:
    """Return the columns that a text lists as for cut, `1,3-4`, or by name.  Raises `ValueError`."""
    words = next(csv.reader([text]), [])
    found = [re.fullmatch(r"(\d+)()|(\d*)-(\d*)", word) for word in words]
    if not all(found):
        return Fields(words)
    slices = [
        slice(int(each[1] or each[3] or 1) - 1, int(each[1] or each[4] or 0) or None)
        for each in found
        if each
    ]
    if not words or "-" in words or any(not 0 <= one.start < (one.stop or _LONGEST) for one in slices):
        raise ValueError(f"expected columns, counted from 1, such as 2 or 1,3-4, not {text!r}")
    return Fields(slices)


def keys_by(
    chosen: Fields | None, delimiter: str | None, json_keys: Sequence[str], *, is_csv: bool
) -> Keys | None:
    """Return the function that the options select, None for whole lines.  Raises `ValueError`."""
    if json_keys and (chosen is not None or delimiter is not None or is_csv):
        raise ValueError("--json-key is for lines of JSON: leave out --field, --delimiter and --csv")
    for option, given in (("--delimiter", delimiter is not None), ("--csv", is_csv)):
        if chosen is None and given:
            raise ValueError(f"{option} separates columns, so it needs --field")
    if delimiter == "":
        raise ValueError("--delimiter must not be empty")
    if chosen is None:
        return _json(json_keys) if json_keys else None
    separator = None if delimiter is None else delimiter.replace(r"\t", "\t")
    return _Csv(chosen, separator or ",") if is_csv else _columns(chosen, separator)


def _columns(chosen: Fields, delimiter: str | None) -> Keys:
    """Return the keys of columns that are separated by a delimiter, or by blanks as in awk."""
    picked, most = _picked(chosen)
    if delimiter is not None:
        separator = delimiter.encode(errors="surrogateescape")
        return lambda lines: [picked(line.split(separator, most or -1)) for line in lines]
    split = re.compile(rb"[ \t]+").split
    return lambda lines: [picked(split(line.strip(b" \t"), most)) or None for line in lines]


def _picked(chosen: Fields) -> tuple[Callable[[Sequence[bytes]], bytes | None], int]:
    """Return a function from a line's columns to its key, and how many columns it needs, 0 for all."""
    slices = [one for one in chosen if isinstance(one, slice)]
    if len(slices) < len(chosen):
        raise ValueError(
            f"--field {','.join(map(str, chosen))}: columns have numbers, such as 1,3-4; names need --csv"
        )
    needed = max(one.stop or one.start + 1 for one in slices)
    is_one = len(slices) == 1 and slices[0].stop == needed == slices[0].start + 1

    def picked(columns: Sequence[bytes]) -> bytes | None:
        if len(columns) < needed:
            return None
        return columns[needed - 1] if is_one else _joined(chain.from_iterable(columns[one] for one in slices))

    return picked, needed if all(one.stop for one in slices) else 0


def _joined(parts: Iterable[bytes]) -> bytes:
    return b"".join([b"%d:%b," % (len(part), part) for part in parts])


class _Csv:
    """Columns of CSV, by number or by the names in the header of each file.

    :ivar names: the names; none if the columns have numbers, and the files no header.
    """

    def __init__(self, chosen: Fields, delimiter: str) -> None:
        if len(delimiter) != 1:
            raise ValueError(f"--csv takes a --delimiter of one character, not {delimiter!r}")
        csv.field_size_limit(_LONGEST)
        self._delimiter = delimiter
        self.names = [name for name in chosen if isinstance(name, str)]
        self._picked = None if self.names else _picked(chosen)[0]

    def records(self, batches: Iterable[list[bytes]]) -> Iterator[list[bytes]]:
        """Yield the records of a file; a newline between quotes is a part of its record."""
        begun: list[bytes] = []
        is_open = False
        for lines in batches:
            records = []
            for line in lines:
                begun.append(line)
                is_open ^= line.count(b'"') & 1 == 1
                if not is_open:
                    records.append(b"\n".join(begun))
                    begun = []
            yield records
        if begun:
            yield [b"\n".join(begun)]

    def header(self, record: bytes) -> None:
        """Find the columns in the header of a file.  Raises `ValueError`."""
        names = self._read(record)
        absent = [name for name in self.names if name.encode() not in names]
        if absent:
            there = b", ".join(names).decode(errors="replace")
            raise ValueError(f"no column is called {', '.join(absent)}; the header has {there[:200]}")
        at = [names.index(name.encode()) for name in self.names]
        self._picked = _picked(Fields(slice(one, one + 1) for one in at))[0]

    def __call__(self, lines: list[bytes]) -> Iterable[bytes | None]:
        return [self._picked and self._picked(self._read(line)) for line in lines]

    def _read(self, record: bytes) -> list[bytes]:
        text = record.decode(errors="surrogateescape").removesuffix("\r")
        try:
            columns = next(csv.reader([text], delimiter=self._delimiter, strict=True), [])
        except csv.Error as error:
            raise ValueError(f"--csv cannot read {text[:60]!r}: {error}") from None
        return [column.encode(errors="surrogateescape") for column in columns]


_NO_TEXT: Final = b"\xff"
"""The first byte of items that are no strings or numbers; no text has it."""


def _json(names: Sequence[str]) -> Keys:
    """Return a reader of JSON keys: the item is a string or number as text, and any other value as JSON."""
    paths = [[name, *name.split(".")] for name in names]

    def key(line: bytes) -> bytes | None:
        try:
            found = json.loads(line, parse_float=_Number, parse_int=_Number)
        except (ValueError, RecursionError):
            return None
        items = [_item(_value(found, *path)) for path in paths]
        if None in items:
            return None
        return items[0] if len(items) == 1 else _joined([item for item in items if item is not None])

    return lambda lines: map(key, lines)


def _value(found: Any, name: str, *path: str) -> Any:
    """Return the value of a key: that of the whole name or, step by step, of the path."""
    for one in (name,) if isinstance(found, dict) and name in found else path:
        found = found.get(one) if isinstance(found, dict) else None
    return found


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


class Missing(StrEnum):
    """Treatment of lines without the column or key."""

    KEEP = "keep"
    DROP = "drop"
    ERROR = "error"


def missing_named(text: str) -> Missing:
    """Return a treatment by its name.  Raises `ValueError`."""
    if text not in tuple(Missing):
        raise ValueError(f"{text!r} is not one of {', '.join(Missing)}")
    return Missing(text)


class Columns:
    """Selection of the part of lines that is compared.

    :param keys: a function from lines to that part, None for whole lines.
    :param lowers: upper case and lower case are the same.
    :ivar missed: the number of lines without that part.
    """

    def __init__(self, keys: Keys | None, missing: Missing = Missing.KEEP, *, lowers: bool = False) -> None:
        self._keys = keys
        self._missing = missing
        self._lowers = lowers
        self._refused: int | None = None
        self.missed = 0

    @property
    def are_whole(self) -> bool:
        """True if lines are compared whole."""
        return self._keys is None

    def records(self, batches: Iterator[list[bytes]]) -> tuple[list[bytes], Iterator[list[bytes]]]:
        """Return the header of a file, if it is one of CSV with a header, and the records after it."""
        if not isinstance(self._keys, _Csv):
            return [], batches
        batches = self._keys.records(batches)
        first = next(filter(None, batches), []) if self._keys.names else []
        if first:
            self._keys.header(first[0])
        return first[:1], chain([first[1:]], batches)

    def split(self, lines: list[bytes], before: int) -> tuple[Sequence[Key], Sequence[bytes]]:
        """Return keys and their lines; a line that passes anyway has its number as key.

        :param before: the number of lines before these.
        """
        if self._keys is None and not self._lowers:
            return lines, lines
        found: Iterable[bytes | None] = lines if self._keys is None else self._keys(lines)
        keys: list[Any] = list(map(_lowered, found) if self._lowers else found)
        if None not in keys:
            return keys, lines
        self.missed += keys.count(None)
        if self._missing is Missing.ERROR:
            end = keys.index(None)
            self._refused = before + end + 1
            return keys[:end], lines[:end]
        if self._missing is Missing.KEEP:
            return [before + i if key is None else key for i, key in enumerate(keys, 1)], lines
        there = [key is not None for key in keys]
        return list(compress(keys, there)), list(compress(lines, there))

    def check(self) -> None:
        """Raise `ValueError` if `split` refused a line; it has returned the lines before that line."""
        if self._refused is not None:
            raise ValueError(
                f"line {self._refused} has no such column or key; --missing keep or drop continues after it"
            )

    def end(self, read: int) -> str | None:
        """Return a warning about lines without the column or key; raise `ValueError` if no line has it.

        :param read: the number of all lines.
        """
        if not self.missed:
            return None
        done = "dropped" if self._missing is Missing.DROP else "kept"
        if self.missed == read:
            raise ValueError(f"no line has such a column or key; all {read:,} were {done}: is it misspelt?")
        return f"lines that were {done} without the column or key: {self.missed:,} of {read:,}"


def _lowered(key: bytes | None) -> bytes | None:
    if key is None or key.isascii():
        return key and key.lower()
    return key.decode(errors="surrogateescape").lower().encode(errors="surrogateescape")
