"""The examples on the pages of adapters."""

from __future__ import annotations

from typing import Any

from bloomredis import instrument
from tests.support.readme import ROOT, answers_asserted, on_page
from tests.support.servers import Server


def run(page: str, server: Server) -> dict[str, Any]:
    """Run the examples of a page on that server instead of `localhost`; return the names of the last one.

    Each example is a program of its own, and its assertions hold.
    """
    names: dict[str, Any] = {}
    examples = [block for block in on_page(ROOT / "docs" / f"{page}.md") if block.language == "python"]
    try:
        for example in examples:
            names = {"__name__": "example"}
            text = answers_asserted(example.text).replace("redis://localhost", server.url)
            exec(compile(text, f"{page}:{example.line}", "exec"), names)  # noqa: S102 - the project's own pages
    finally:
        instrument(None)
    return names
