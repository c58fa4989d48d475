"""The rules and the examples that the README gives to users."""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from pathlib import Path
from typing import Final

README: Final = Path(__file__).parents[2] / "README.md"


def acl_rule() -> list[str]:
    """Return the ACL rule for a user of a filter named `seen`, word by word."""
    found = re.search(r"ACL SETUSER worker on >secret (.*?)\n```", README.read_text(), re.DOTALL)
    assert found
    return found[1].replace("\\\n", " ").split()


def sharded_rule() -> str:
    """Return the addition to the rule for a sharded filter."""
    found = re.search(r"A `ShardedBloomFilter` needs `(~\S+)` besides", README.read_text())
    assert found
    return found[1]


ASSUMED: Final = {
    "client": "client = redis.Redis()",
    "cluster": 'cluster = redis.RedisCluster(host="localhost")',
    "fetch": "def fetch(url: str) -> None: ...",
    "seen": 'seen = bloomredis.BloomFilter(redis.Redis(), "seen")',
    "server_a": "server_a = redis.Redis()",
    "server_b": "server_b = redis.Redis()",
    "stream": "async def read() -> AsyncIterator[str]:\n    yield 'a'\n\nstream = read()",
    "url": 'url = "a"',
    "urls": 'urls = ["a", "b"]',
    "user": 'user = "alice"',
}
"""Names that examples take to be there, and their definitions."""
IMPORTS: Final = {
    "bloomredis": "import bloomredis",
    "redis": "import redis",
    "AsyncIterator": "from collections.abc import AsyncIterator",
}


def examples() -> list[str]:
    """Return each Python example, completed to a program: with what it assumes, and where it may await."""
    return [_program(text) for text in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)]


def _program(example: str) -> str:
    tree = compile(example, "README.md", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assumed = [ASSUMED[name] for name in sorted(_free(tree))]
    used = {name for text in assumed for name in _names(ast.parse(text), ast.Load)}
    awaits = any(isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith) for node in ast.walk(tree))
    if awaits:
        example = f"async def main() -> None:\n{textwrap.indent(example, '    ')}"
    return "\n".join([*(IMPORTS[name] for name in sorted(used & set(IMPORTS))), *assumed, example])


def _free(tree: ast.AST) -> set[str]:
    """Return the names that are read and nowhere assigned or imported."""
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    return _names(tree, ast.Load) - _names(tree, ast.Store) - imported - set(dir(builtins))


def _names(tree: ast.AST, use: type[ast.expr_context]) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, use)}
