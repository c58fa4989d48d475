"""The size of each part of the repository, and the budget of `budget.toml` that core, Lua and command share.

`python .ci/size.py` prints lines and statements, and fails if these parts have more statements than their
budget.  In Python, a statement is one of the syntax tree that is no docstring; in Lua, a line of code.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]

LAYERS: Final = ("bits", "protocol", "stored", "operations", "drivers")
PARTS: Final = {
    "core": [f"bloomredis/{layer}/*.py" for layer in LAYERS],
    "Lua": ["lua/*.lua"],
    "command": ["bloomredis/cli/*.py"],
    "adapters": ["bloomredis/contrib/*.py"],
    "tests": ["tests/*.py"],
}
"""The parts that are measured, as patterns of git, whose `*` also matches `/`."""

BUDGETED: Final = ("core", "Lua", "command")
"""The parts that share the budget."""

GENERATED: Final = "# Made from "
"""The beginning of a generated file, which is measured apart, and has no part in the budget."""

BASE: Final = "cdc11e4"
"""The commit whose lines are shown beside those of today, until there is a tag."""


def git(*command: str) -> str:
    """Return the output of git; nothing if it fails."""
    done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def generated(patterns: Sequence[str], *commit: str) -> list[str]:
    """Return the generated ones of the tracked files."""
    found = git("grep", "--files-with-matches", f"^{GENERATED}.*make generate", *commit, "--", *patterns)
    return [line.rpartition(":")[2] for line in found.splitlines()]


def by_hand(patterns: Sequence[str], *commit: str) -> list[str]:
    """Return the patterns without the generated files."""
    return [*patterns, *(f":(exclude){file}" for file in generated(patterns, *commit))]


def count_lines(patterns: Sequence[str], *commit: str) -> int:
    """Return the number of lines of the tracked files, as they are or as they were in a commit."""
    counted = git("grep", "--count", "-e", "", *commit, "--", *patterns)
    return sum(int(line.rpartition(":")[2]) for line in counted.splitlines())


def count_statements(patterns: Sequence[str]) -> int:
    """Return the number of statements of the tracked files that exist."""
    listed = subprocess.check_output(["git", "ls-files", "--", *patterns], cwd=ROOT, text=True)
    files = [ROOT / name for name in listed.splitlines()]
    return sum(statements(file.suffix, file.read_text("utf-8")) for file in files if file.exists())


def statements(suffix: str, text: str) -> int:
    """Return the number of statements of a program in Python, or of lines of code in Lua."""
    if suffix == ".lua":
        lines = map(str.strip, text.splitlines())
        return sum(bool(line) and not line.startswith("--") for line in lines)
    nodes = ast.walk(ast.parse(text))
    return sum(isinstance(node, ast.stmt) and not is_docstring(node) for node in nodes)


def is_docstring(node: ast.stmt) -> bool:
    """Return whether a statement is a text alone."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def base() -> str:
    """Return the last tag or the base commit; nothing if a shallow clone has neither."""
    last = git("describe", "--tags", "--abbrev=0") or git("rev-parse", "--short", f"{BASE}^{{commit}}")
    return last.strip()


def main() -> int:
    """Print the size of each part; return 1 if the parts with a budget are over it."""
    before = base()
    print(f"\n{'lines':24}{'now':>8}{before:>12}{'statements':>12}")
    total = 0
    for part, patterns in PARTS.items():
        own, made = by_hand(patterns), sum(count_lines([file]) for file in generated(patterns))
        then = f"{count_lines(by_hand(patterns, before), before):12,}" if before else " " * 12
        counted = count_statements(own) if part in BUDGETED else 0
        shown = f"{counted:,}" * bool(counted)
        total += counted
        remark = f"  and {made:,} generated lines" * bool(made)
        print(f"{part:24}{count_lines(own):8,}{then}{shown:>12}{remark}")
    budget: int = tomllib.loads((ROOT / ".ci" / "budget.toml").read_text("utf-8"))["statements"]
    is_over = total > budget
    remark = f"  OVER THE BUDGET, by {total - budget:,}" * is_over
    print(f"{', '.join(BUDGETED):44}{total:12,}  of {budget:,}{remark}")
    return int(is_over)


if __name__ == "__main__":
    sys.exit(main())
