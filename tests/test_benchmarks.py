"""The pages show the stored results of the benchmarks (`python -m benchmarks.report` writes them)."""

from __future__ import annotations

import re

import pytest

from benchmarks.report import pages
from benchmarks.report.tables import ServerReport
from benchmarks.runner.measure import Result


@pytest.mark.docs
def test_the_page_and_the_table_of_figures_are_of_one_run() -> None:
    """speed.md names the date, the servers and the versions of results.md, which has every figure."""
    page = (pages.ROOT / "docs" / "speed.md").read_text("utf-8")
    block = page[: page.index("<!-- end of figures -->")].replace("\n", " ")
    heads = re.findall(
        r"^(\w+ [\d.]+).*?RedisBloom ([\d.]+), Python ([\d.]+).*?, redis ([\d.]+).*?(\d{4}-\d\d-\d\d)\.$",
        (pages.RESULTS / "results.md").read_text("utf-8"),
        re.MULTILINE,
    )
    assert len(heads) == 2
    for server, module, python, client, date in heads:
        said = f"on {date}", f"Python {python}", f"redis-py {client}", f"RedisBloom {module}"
        assert [each for each in said if each not in block] == []
        assert f"| {server} |" in page


@pytest.mark.docs
@pytest.mark.skipif(not pages.STORED.exists(), reason="`make bench` stores the rounds; a release has them")
def test_pages_show_the_stored_results() -> None:
    """results.md, the chart and each table of a page say what results.json says."""
    differing = [path for path, text in pages.written().items() if path.read_text("utf-8") != text]
    assert [path.relative_to(pages.ROOT).as_posix() for path in differing] == []


def test_a_row_without_results_is_named() -> None:
    """The script names each row for which a server has no figures; a table omits rows without any figures."""
    row = pages.RATIOS[0]
    sides = {side: {"wall": [1e-5]} for side in (row.side, row.against)}
    results = {row.workload: Result(row.workload, sides)}
    stored = ServerReport("one", {"server": "One 1"}, {}, "blocked", results)
    lacking = ServerReport("other", {"server": "Other 1"}, {}, "blocked")
    assert [what for what in pages.missing([stored, lacking]) if what.startswith(f"{row.what} beside")]
    assert f"| {row.what} | {row.beside} |" in pages.table(pages.RATIOS, [stored, lacking])
    assert "|" not in pages.table(pages.RATIOS, [lacking])
