"""The pages show the stored results of the benchmarks (`python -m benchmarks.report` writes them)."""

from __future__ import annotations

import pytest

from benchmarks.report import pages, tables
from benchmarks.report.tables import ServerReport


@pytest.mark.docs
def test_pages_show_the_stored_results() -> None:
    """results.md, the chart and each table of a page say what results.json says."""
    differing = [path for path, text in pages.written().items() if path.read_text("utf-8") != text]
    assert [path.relative_to(pages.ROOT).as_posix() for path in differing] == []


def test_a_row_without_results_is_named() -> None:
    """The script names each row for which a server has no figures; a table omits rows without any figures."""
    _, (stored, *_) = tables.stored(pages.STORED)
    row = pages.RATIOS[0]
    lacking = ServerReport("other", {"server": "Other 1"}, {}, "blocked")
    assert [what for what in pages.missing([stored, lacking]) if what.startswith(f"{row.what} beside")]
    assert f"| {row.what} | {row.beside} |" in pages.table(pages.RATIOS, [stored, lacking])
    assert "|" not in pages.table(pages.RATIOS, [lacking])
