"""The rules and the examples that README.md and the pages of docs/ give to users."""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"
RIGHTS: Final = ROOT / "docs" / "rights.md"
PAGES: Final = [README, *sorted((ROOT / "docs").glob("*.md"))]
ADAPTERS: Final = ROOT / "bloomredis" / "contrib"
"""Each module has a page of its name, whose examples `make test-contrib` runs: they need the framework."""


def acl_rule() -> list[str]:
    """Return the ACL rule for a user of a filter named `seen`, word by word."""
    found = re.search(r"ACL SETUSER worker on >secret (.*?)\n```", RIGHTS.read_text(), re.DOTALL)
    assert found
    return found[1].replace("\\\n", " ").split()


def module_rule() -> list[str]:
    """Return the commands that a filter of the server's module needs besides."""
    found = re.search(r'^\| `layout="module"` \| `(.+)` \|$', RIGHTS.read_text(), re.MULTILINE)
    assert found
    return found[1].split()


def sharded_rule() -> str:
    """Return the addition to the rule for a sharded filter."""
    found = re.search(r"A `ShardedBloomFilter` needs `(~\S+)` besides", RIGHTS.read_text())
    assert found
    return found[1]


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; one with a caption is a file that later blocks use."""

    page: str
    line: int
    language: str
    caption: str
    text: str


FENCE: Final = re.compile(
    r"^```(?:\{code-block\} )?([\w{}-]+)\n(?::caption: (\S+)\n\n)?(.*?)^```$", re.MULTILINE | re.DOTALL
)


def blocks(*languages: str) -> Iterator[Block]:
    """Yield the blocks in these languages, or in any, page by page, without the pages of adapters."""
    for page in PAGES:
        if not (ADAPTERS / f"{page.stem}.py").exists():
            yield from (block for block in on_page(page) if not languages or block.language in languages)


def on_page(page: Path) -> Iterator[Block]:
    """Yield the blocks of one page."""
    text = page.read_text()
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page.stem, line, found[1], found[2] or "", found[3])


ASSUMED: Final = {
    "client": "client = redis.Redis()",
    "cluster": 'cluster = redis.RedisCluster(host="localhost")',
    "fetch": "def fetch(url: str) -> None: ...",
    "module": "module = redis.Redis()",
    "seen": 'seen = bloomredis.BloomFilter(redis.Redis(), "seen", capacity=200_000, error_rate=0.001)',
    "server_a": "server_a = redis.Redis()",
    "server_b": "server_b = redis.Redis()",
    "stream": "async def read() -> AsyncIterator[str]:\n    yield 'a'\n\nstream = read()",
    "url": 'url = "u"',
    "urls": 'urls = ["u", "v"]',
    "user": 'user = "alice"',
}
"""Names that examples take to be there, and their definitions."""
IMPORTS: Final = {
    "bloomredis": "import bloomredis",
    "redis": "import redis",
    "AsyncIterator": "from collections.abc import AsyncIterator",
}
ANSWERED: Final = re.compile(
    r'^(?P<call>\S.*?)  # (?P<answer>True|False|\d+|"\w*"|\[.*?\])(?=$|[:;,])', re.MULTILINE
)
"""A line whose comment begins with the value of its expression."""


def examples() -> list[str]:
    """Return each Python example, completed to a program: with what it assumes, and where it may await."""
    return [program(block.text) for block in blocks("python")]


def answers_asserted(example: str) -> str:
    """Return an example that asserts what its comments say."""
    return ANSWERED.sub(lambda found: f"assert ({found['call']}) == {found['answer']}  #", example)


def program(example: str) -> str:
    """Return an example with definitions of the names that it assumes, and with a `main` if it awaits."""
    tree = compile(example, "an example", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assumed = [ASSUMED[name] for name in sorted(_free(tree))]
    used = {name for text in assumed for name in _names(ast.parse(text), ast.Load)}
    if awaits(tree):
        example = f"async def main() -> None:\n{textwrap.indent(example, '    ')}"
    return "\n".join([*(IMPORTS[name] for name in sorted(used & set(IMPORTS))), *assumed, example])


def awaits(tree: ast.AST) -> bool:
    """Return True if a program awaits outside of its functions."""
    return any(isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith) for node in ast.walk(tree))


def _free(tree: ast.AST) -> set[str]:
    """Return the names that are read and nowhere assigned, defined or imported."""
    nodes = list(ast.walk(tree))
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    defined = {
        node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler)
    }
    defined |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return _names(tree, ast.Load) - _names(tree, ast.Store) - imported - defined - set(dir(builtins))


def _names(tree: ast.AST, use: type[ast.expr_context]) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, use)}
