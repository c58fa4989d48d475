"""Rewrites the pages' figures from the stored results: `python -m benchmarks.report`."""

from __future__ import annotations

from benchmarks.report import pages, tables


def main() -> None:
    """Write results.md, the chart and the tables of the pages; say which figures are missing."""
    for path, text in pages.written().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"written: {path.relative_to(pages.ROOT)}")
    _, servers = tables.stored(pages.STORED)
    for what in pages.missing(servers):
        print(f"not in {pages.STORED.name}: {what}")


if __name__ == "__main__":
    main()
