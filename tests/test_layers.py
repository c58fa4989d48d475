"""The folders of the package, in order: imports point down only, and clients are met at the top."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import bloomredis
from tests.support.values import for_each

PACKAGE = Path(bloomredis.__file__).parent
FLOORS: list[set[str]] = [
    {"errors"},
    {"arguments"},
    {"bits", "protocol"},
    {"stored"},
    {"operations"},
    {"embedded"},
    {"drivers"},
    {"__init__", "asyncio"},
    {"compat", "contrib"},
    {"cli"},
    {"__main__"},
]
FLOOR = {name: floor for floor, names in enumerate(FLOORS) for name in names}


def imported(path: Path) -> Iterator[list[str]]:
    """Yield every module that a file imports, as its parts."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name.split(".") for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            inside = {name.name for name in node.names} & set(FLOOR) if node.module == "bloomredis" else ()
            yield from (
                ([str(node.module), name] for name in inside) if inside else [str(node.module).split(".")]
            )


@for_each("path", sorted(PACKAGE.rglob("*.py")))
def test_imports_point_down(path: Path) -> None:
    """A module imports from its own folder and from floors below; below the drivers nobody meets a client."""
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for package, *inside in imported(path):
        other = (inside or ["__init__"])[0]
        assert package != "bloomredis" or other == own or FLOOR[other] < FLOOR[own], f"{own} imports {other}"
        assert FLOOR[own] >= FLOOR["embedded"] or package not in {"redis", "valkey", "asyncio", "socket"}


@for_each("path", sorted((PACKAGE / "contrib").glob("*.py")))
def test_adapters_use_what_is_public(path: Path) -> None:
    """A module of contrib imports from its own folder, `bloomredis` and `bloomredis.asyncio` alone."""
    own = {".".join(parts) for parts in imported(path) if parts[0] == "bloomredis"}
    assert {name for name in own if not name.startswith("bloomredis.contrib")} <= {
        "bloomredis",
        "bloomredis.asyncio",
    }
