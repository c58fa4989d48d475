"""Loops around a server's answers: each has a bound, so that no call repeats itself for ever."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import bloomredis

PACKAGE: Final = Path(bloomredis.__file__).parent
FOLDERS: Final = ("operations", "stored", "drivers", "protocol")

BOUNDED: Final = {
    "drivers/aio_running.py drive": "it runs an operation, which ends by itself",
    "protocol/gather.py gather": "the same",
    "operations/claims/patience.py retry_patiently": "a limit of time and the lease, with pauses",
    "protocol/cluster.py _deliver": "a limit of time and of losses, with pauses",
    "operations/items/membership.py _add_rest": "each reply answers at least one item",
    "operations/items/local_cache.py _refreshed": "each turn reads the next piece of the filter",
    "operations/whole/loading.py load": "each turn reads the next batch of the caller's items",
    "operations/whole/module_loading.py load_items": "the same",
    "operations/whole/sharded_loading.py load": "the same",
    "operations/whole/sharded_loading.py _read": "the same",
    "drivers/renewing.py _renew": "each turn renews the claims of one node",
    "operations/whole/loading.py send_full": "a batch whose layers change is sent in another way",
}
"""Loops without `next_round`, and what ends each."""


def loops(path: Path) -> Iterator[tuple[str, ast.While]]:
    """Yield the loops of a module that wait for something, each with its function."""
    tree = ast.parse(path.read_text())
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in own_nodes(function):
                if isinstance(node, ast.While) and waits(node):
                    yield f"{path.relative_to(PACKAGE)} {function.name}", node


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of the functions within."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            yield from own_nodes(node)


def waits(loop: ast.While) -> bool:
    """Return whether a loop waits for answers; a `yield` whose value is not used only passes something on."""
    unused = {id(node.value) for node in ast.walk(loop) if isinstance(node, ast.Expr)}
    return any(
        isinstance(node, ast.YieldFrom | ast.Await)
        or (isinstance(node, ast.Yield) and id(node) not in unused)
        for node in ast.walk(loop)
    )


def is_counted(loop: ast.While) -> bool:
    """Return whether a loop counts its rounds."""
    return any(isinstance(node, ast.Name) and node.id == "next_round" for node in ast.walk(loop))


def test_each_loop_has_a_bound() -> None:
    """A loop that waits counts its rounds, or is listed with what ends it; the list has no other loops."""
    found = [each for folder in FOLDERS for path in (PACKAGE / folder).rglob("*.py") for each in loops(path)]
    assert {where for where, loop in found if not is_counted(loop)} == BOUNDED.keys()
    assert sum(is_counted(loop) for _, loop in found) > 20
