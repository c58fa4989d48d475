"""Lines and columns of the input, tested without a process."""

from __future__ import annotations

import re
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from bloomredis.cli import columns as columns_
from bloomredis.cli import lines


@given(
    st.binary(max_size=60).map(lambda data: data.translate(bytes(b"\nab"[i % 3] for i in range(256)))),
    st.data(),
)
def test_lines_do_not_depend_on_chunks(data: bytes, draw: st.DataObject) -> None:
    """The lines are the same, whatever the chunks in which the bytes arrive."""
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)))))
    chunks = [data[i:j] for i, j in zip([0, *cuts], [*cuts, len(data)], strict=True) if i < j]
    found = [line for batch in lines.batches(chunks) for line in batch]
    assert found == (data.removesuffix(b"\n").split(b"\n") if data else [])


@given(st.lists(st.text("ab\r\n", min_size=1, max_size=5).map(str.encode)))
def test_a_cr_before_lf_does_not_depend_on_chunks(chunks: list[bytes]) -> None:
    """Each CR LF becomes LF, and any other CR stays; the notice comes if there was a CR LF."""
    data, notices = b"".join(chunks), list[bool]()
    assert b"".join(lines.without_cr(chunks, lambda: notices.append(True))) == data.replace(b"\r\n", b"\n")
    assert bool(notices) == (b"\r\n" in data)


def test_a_long_line_is_in_memory_twice() -> None:
    """A long line is in memory twice at most: as parts, and as the joined line."""
    size, parts = 1 << 16, 400
    tracemalloc.start()
    try:
        (last,) = lines.batches([*(b"x" * size for _ in range(parts)), b"\n"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [len(line) for line in last] == [size * parts]
    assert peak < 2.2 * size * parts


@given(
    st.binary(max_size=60).map(lambda data: data.translate(bytes(b"\0\na"[i % 3] for i in range(256)))),
    st.integers(1, 5),
)
def test_lines_that_end_in_nul(data: bytes, size: int) -> None:
    """With another end, a newline is a byte like any other."""
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    found = [line for batch in lines.batches(chunks, b"\0") for line in batch]
    assert found == (data.removesuffix(b"\0").split(b"\0") if data else [])


@given(st.integers(1, 5), st.text("ab \t\r", max_size=20).map(str.encode))
def test_blank_separated_columns(field: int, line: bytes) -> None:
    """A column is the n-th run of bytes other than space and tab."""
    found = re.findall(rb"[^ \t]+", line)
    expected = found[field - 1] if len(found) >= field else None
    assert keys_of(str(field), None, line) == expected


@given(st.lists(st.text("a,:1", max_size=3).map(str.encode), min_size=1, max_size=6))
def test_columns_by_list(columns: list[bytes]) -> None:
    """A list of columns is that of cut; a line that lacks one of them has no key."""
    line = b";".join(columns)
    taken = [*columns[:1], *columns[2:4]]
    expected = b"".join(b"%d:%b," % (len(each), each) for each in taken) if len(columns) > 3 else None
    assert keys_of("1,3-4", ";", line) == expected
    assert keys_of("2-", ";", line) == (
        b"".join(b"%d:%b," % (len(each), each) for each in columns[1:]) if len(columns) > 1 else None
    )
    assert keys_of("-1", ";", line) == columns[0]


def test_several_columns_are_one_item_each() -> None:
    """The separator in a column, and what looks like another item, make no two lists the same."""
    lists = [(b"a", b"bc"), (b"ab", b"c"), (b"1:a,", b"c"), (b"a,1:b", b"c"), (b"a", b"1:b,c"), (b"", b"abc")]
    assert len({keys_of("1,2", ";", b";".join(each)) for each in lists}) == len(lists)


def keys_of(listed: str, delimiter: str | None, line: bytes) -> bytes | None:
    """Return the key of a line."""
    keys = columns_.keys_by(columns_.fields(listed), delimiter, (), is_csv=False)
    assert keys is not None
    (found,) = keys([line])
    return found
