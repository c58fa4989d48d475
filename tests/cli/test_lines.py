"""Lines and columns of the input, tested without a process."""

from __future__ import annotations

import re
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from bloomredis.cli import columns, lines


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


@given(st.integers(1, 5), st.text("ab \t\r", max_size=20).map(str.encode))
def test_blank_separated_columns(field: int, line: bytes) -> None:
    """A column is the n-th run of bytes other than space and tab."""
    found = re.findall(rb"[^ \t]+", line)
    expected = found[field - 1] if len(found) >= field else None
    keys = columns.keys_by(field, None, None, is_csv=False)
    assert keys is not None
    assert list(keys([line])) == [expected]
