"""Rules about docstrings and lengths that no linter checks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import bloomredis
import bloomredis.asyncio
from tests.support.values import for_each

pytestmark = pytest.mark.lint

PACKAGE = Path(bloomredis.__file__).parent
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def source(module: str) -> str:
    """Return the text of a module."""
    return (PACKAGE / module).read_text("utf-8")


def documented(module: str) -> Iterator[ast.Module | ast.ClassDef | FUNCTIONS]:
    """Yield the module, its classes and its functions."""
    for node in ast.walk(ast.parse(source(module))):
        if isinstance(node, ast.Module | ast.ClassDef | FUNCTIONS):
            yield node


def lines(node: FUNCTIONS) -> int:
    """Return the number of lines of a function, without its docstring."""
    first = node.body[0]
    documented = ast.get_docstring(node) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
    return (node.end_lineno or 0) - node.lineno + 1 - docstring


@for_each("module", MODULES)
def test_no_docstring_begins_with_a_question(module: str) -> None:
    """The first word of a docstring is never What, Which, Whether or How."""
    docstrings = filter(None, map(ast.get_docstring, documented(module)))
    assert [text for text in docstrings if re.match(r"(What|Which|Whether|How)\b", text)] == []


@for_each("module", MODULES)
def test_docstrings_of_functions_begin_with_a_verb(module: str) -> None:
    """It is an order: no article, no third person and no participle; a property is no function."""
    functions = [
        node
        for node in documented(module)
        if isinstance(node, FUNCTIONS)
        and not re.search(r"property\b|\bderived\b", " ".join(map(ast.unparse, node.decorator_list)))
    ]
    docstrings = filter(None, map(ast.get_docstring, functions))
    assert [text for text in docstrings if re.match(r"(An?|The|True|False|None|\w+(s|ing))\b", text)] == []


@for_each("module", MODULES)
def test_functions_are_short(module: str) -> None:
    """A function has at most 40 lines, or says after `# long:` why it needs more."""
    text = source(module).splitlines()
    functions = [node for node in documented(module) if isinstance(node, FUNCTIONS)]
    reasoned = [node for node in functions if re.search(r"# long: \w", text[node.lineno - 1])]
    assert [node.name for node in functions if node not in reasoned and lines(node) > 40] == []


@for_each("module", [bloomredis, bloomredis.asyncio])
def test_dir_shows_the_public_names_alone(module: object) -> None:
    """`dir()` of a module shows neither submodules, but for `compat`, nor the module's own imports."""
    shown = {name for name in dir(module) if not name.startswith("__")}
    assert shown - {"compat"} == set(module.__all__)  # type: ignore[attr-defined]
