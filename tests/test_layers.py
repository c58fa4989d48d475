"""The folders of the package, in order: imports point down only, and only the top folders import clients."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import bloomredis
from tests.support.values import for_each

pytestmark = pytest.mark.lint

PACKAGE = Path(bloomredis.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
FLOORS: list[set[str]] = [
    {"errors"},
    {"arguments", "derived", "later"},
    {"bits", "protocol"},
    {"stored"},
    {"operations"},
    {"embedded"},
    {"drivers"},
    {"__init__", "asyncio"},
    {"compat", "contrib", "testing"},
    {"cli"},
    {"__main__"},
]
FLOOR = {name: floor for floor, names in enumerate(FLOORS) for name in names}


def imported(path: Path) -> Iterator[list[str]]:
    """Yield every module that a file imports, split at its dots."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name.split(".") for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            inside = {name.name for name in node.names} & set(FLOOR) if node.module == "bloomredis" else ()
            yield from (
                ([str(node.module), name] for name in inside) if inside else [str(node.module).split(".")]
            )


@for_each("path", FILES)
def test_imports_point_down(path: Path) -> None:
    """A module imports from its own folder and lower ones; no module below the drivers imports a client.

    The package names `compat` for type checkers, and imports it at its first use.
    """
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for package, *inside in imported(path):
        other = (inside or ["__init__"])[0]
        if (own, other) == ("__init__", "compat"):
            continue
        assert package != "bloomredis" or other == own or FLOOR[other] < FLOOR[own], f"{own} imports {other}"
        assert FLOOR[own] >= FLOOR["embedded"] or package not in {"redis", "valkey", "asyncio", "socket"}


def modules() -> dict[str, set[str]]:
    """Return the modules that each module of the package imports, including imports for type checkers."""
    names = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in FILES}
    names = {name.removesuffix(".__init__"): path for name, path in names.items()}
    found: dict[str, set[str]] = {}
    for name, path in names.items():
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        asked = {(node.module or "", alias.name) for node in nodes for alias in node.names}
        found[name] = {f"{of}.{each}" if f"{of}.{each}" in names else of for of, each in asked} & names.keys()
    return found


def circles(arrows: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of nodes that can reach each other."""

    def reached(start: str) -> set[str]:
        seen, left = set[str](), [start]
        while left:
            new = arrows.get(left.pop(), set()) - seen
            seen |= new
            left += new
        return seen

    reach = {node: reached(node) for node in arrows}
    inside = [node for node in arrows if node in reach[node]]
    return [{other for other in reach[node] if node in reach[other]} for node in inside]


def test_no_imports_go_in_a_circle() -> None:
    """Neither modules nor nested folders import each other in a circle; `if TYPE_CHECKING` counts too."""
    arrows = modules()
    assert circles(arrows) == []

    def room(module: str) -> str:
        return ".".join(module.split(".")[:3])

    rooms: dict[str, set[str]] = {}
    for module, others in arrows.items():
        rooms.setdefault(room(module), set()).update(map(room, others))
    assert circles({name: others - {name} for name, others in rooms.items()}) == []


def test_a_circle_would_be_found() -> None:
    """The search finds a circle that exists."""
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [{"b", "c"}] * 2


@for_each("path", sorted(PACKAGE.rglob("__init__.py")))
def test_a_folder_says_what_lives_there(path: Path) -> None:
    """The first line of a folder's `__init__.py` says what the folder contains."""
    assert (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[0].endswith(".")


@for_each("path", sorted((PACKAGE / "contrib").glob("*.py")))
def test_adapters_use_what_is_public(path: Path) -> None:
    """A module of contrib imports only from its own folder, `bloomredis` and `bloomredis.asyncio`."""
    own = {".".join(parts) for parts in imported(path) if parts[0] == "bloomredis"}
    assert {name for name in own if not name.startswith("bloomredis.contrib")} <= {
        "bloomredis",
        "bloomredis.asyncio",
    }
