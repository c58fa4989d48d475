"""Imports point only downwards, and only drivers know clients."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import bloomredis

PACKAGE = Path(bloomredis.__file__).parent
LAYERS = [
    {"errors"},
    {"header", "scripts", "hashing"},
    {"sizing", "probes"},
    {"blocked"},
    {"layouts", "protocol", "receipts"},
    {"stack", "together", "bulk"},
    {"stored", "pipelines", "clusters"},
    {"bitmaps", "stacked"},
    {"arguments", "info", "calls", "claims", "layered"},
    {"local", "batches", "storage", "transfer", "shards"},
    {"roots"},
    {"caching"},
    {"filter", "binding"},
    {"coalesce", "counting", "spread", "layers", "_guard"},
    {"partitioned", "sharded"},
    {"client", "asyncio", "embedded"},
    {"compat"},
    {"__init__"},
    {"cli"},
]
RANK = {module: rank for rank, modules in enumerate(LAYERS) for module in modules}
MODULES = sorted(PACKAGE.rglob("*.py"))


def layer(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Return the modules of this package that a file imports, at any depth of its code."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "bloomredis":
            parts = (node.module or "").split(".")[1:]
            found.update(parts[:1] or (a.name if a.name in RANK else "__init__" for a in node.names))
        elif isinstance(node, ast.Import):
            found.update(
                [*a.name.split("."), "__init__"][1] for a in node.names if a.name.startswith("bloomredis")
            )
    return found


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_point_downwards(path: Path) -> None:
    """A module imports only from layers below its own (the parts of `cli` also each other)."""
    own = layer(path)
    upwards = {name for name in imported(path) if RANK[name] >= RANK[own] and name != own}
    assert not upwards


def test_every_module_has_a_layer() -> None:
    """No module stands outside the order."""
    assert {layer(path) for path in MODULES} <= set(RANK)


BELOW_DRIVERS = LAYERS[: LAYERS.index({"client", "asyncio", "embedded"})]


@pytest.mark.parametrize("name", sorted(set().union(*BELOW_DRIVERS) - {"_guard"}))
def test_logic_does_no_io(name: str) -> None:
    """Below the drivers nothing imports a client or a socket."""
    tree = ast.parse((PACKAGE / f"{name}.py").read_text())
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    outside = {"redis", "valkey", "asyncio", "socket"}
    assert not {found.split(".")[0] for found in names} & outside
