"""Lines and columns of the input, without a process."""

from __future__ import annotations

import re
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from bloomredis.cli import lines


@given(
    st.binary(max_size=60).map(lambda data: data.translate(bytes(b"\nab"[i % 3] for i in range(256)))),
    st.data(),
)
def test_lines_do_not_depend_on_chunks(data: bytes, draw: st.DataObject) -> None:
    """However the bytes arrive, the lines are those of the whole."""
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)))))
    chunks = [data[i:j] for i, j in zip([0, *cuts], [*cuts, len(data)], strict=True) if i < j]
    found = [line for batch in lines.batches(chunks) for line in batch]
    assert found == (data.removesuffix(b"\n").split(b"\n") if data else [])


def test_a_long_line_is_in_memory_twice() -> None:
    """Its parts while they are put together, and the line."""
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
    """A column is the n-th run of what is neither space nor tab."""
    columns = re.findall(rb"[^ \t]+", line)
    expected = columns[field - 1] if len(columns) >= field else None
    assert list(lines.keys(field, None)([line])) == [expected]
