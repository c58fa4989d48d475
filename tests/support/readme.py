"""The rules and examples for users in README.md and the pages of docs/."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"
RIGHTS: Final = ROOT / "docs" / "rights.md"
DOCS: Final = ROOT / "docs"
PAGES: Final = [README, *sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)]
ADAPTERS: Final = ROOT / "bloomredis" / "contrib"
"""Each module has a page of its name, whose examples `make test-contrib` runs: they need the framework."""
RECIPES: Final = frozenset(("any-framework", "queues"))
"""Pages about frameworks without a module, whose examples it runs as well."""


def acl_rule() -> list[str]:
    """Return the ACL rule for a user of a filter named `seen`, word by word."""
    found = re.search(r"ACL SETUSER worker on >secret (.*?)\n```", RIGHTS.read_text(), re.DOTALL)
    assert found
    return found[1].replace("\\\n", " ").split()


def module_rule() -> list[str]:
    """Return the additional commands for a filter of the server's module."""
    found = re.search(r'^\| `layout="module"` \| `(.+)` \|$', RIGHTS.read_text(), re.MULTILINE)
    assert found
    return found[1].split()


def layout_rule(layout: str) -> list[str]:
    """Return the additional key patterns for a layout of another system."""
    row = rf"^\| the layout {re.escape(layout)} \| the key patterns `(.+)` \|$"
    found = re.search(row, RIGHTS.read_text(), re.MULTILINE)
    assert found
    return found[1].split()


def sharded_rule() -> str:
    """Return the addition to the rule for a sharded filter."""
    found = re.search(r"A `ShardedBloomFilter` also needs `(~\S+)`", RIGHTS.read_text())
    assert found
    return found[1]


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; a block with a caption is a file that later blocks use."""

    page: str
    line: int
    language: str
    caption: str
    text: str


FENCE: Final = re.compile(
    r"^```(?:\{code-block\} )?([\w{}-]+)\n(?::caption: (\S+)\n\n)?(.*?)^```$", re.MULTILINE | re.DOTALL
)


def blocks(*languages: str) -> Iterator[Block]:
    """Yield the blocks in these languages, or in all, page by page, without the pages of adapters."""
    for page in PAGES:
        if page.stem not in RECIPES and not (ADAPTERS / f"{page.stem}.py").exists():
            yield from (block for block in on_page(page) if not languages or block.language in languages)


def on_page(page: Path) -> Iterator[Block]:
    """Yield the blocks of one page."""
    text = page.read_text()
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page.stem, line, found[1], found[2] or "", found[3])


ANSWERED: Final = re.compile(
    r'^(?P<call>[^\s#].*?)(?:  |\n)# (?P<answer>True|False|\d+|"\w*"|\[.*?\])(?=$|[:;,])', re.MULTILINE
)
"""A line whose comment, or the comment below it, begins with the value of its expression."""


def programs() -> dict[str, list[Block]]:
    """Return the Python blocks of each page as one program: each continues the one before."""
    found: dict[str, list[Block]] = {}
    for block in blocks("python"):
        if not block.caption:
            found.setdefault(block.page, []).append(block)
    return found


def examples() -> list[str]:
    """Return the program of each page, wrapped in a `main` if it awaits."""
    return [program("\n".join(block.text for block in page)) for page in programs().values()]


def answers_asserted(example: str) -> str:
    """Return an example with its comments turned into assertions."""
    return ANSWERED.sub(lambda found: f"assert ({found['call']}) == {found['answer']}  #", example)


def program(example: str) -> str:
    """Return an example, wrapped in a `main` if it awaits."""
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    if awaits(compile(example, "an example", "exec", flags)):
        return f"async def main() -> None:\n{textwrap.indent(example, '    ')}"
    return example


def awaits(tree: ast.AST) -> bool:
    """Return whether a program awaits outside its functions."""
    return any(isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith) for node in ast.walk(tree))
