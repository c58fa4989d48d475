"""Functions that know a verb: `python -m benchmarks.profile.verbs`.

A function knows a verb if its name begins with the verb, as `add_many`, `_add_rest`, `queue_add` or
`new_add` do; for a test also `test` and `contains`.  The fewer functions know a verb, the fewer a change of
it concerns.  Functions with other subjects do not count: `pending.add` adds a pending call.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import bloomredis

PACKAGE: Final = Path(bloomredis.__file__).parent
LAYERS: Final = ("protocol", "stored", "operations", "drivers")

_OTHERS: Final = "_one|_many|_encoded|_unasked|_rest|_pending|_elsewhere|_each|_once_more|_again|_now|ed"
VERBS: Final = {
    "add": re.compile(rf"_?(queue_|new_)?add({_OTHERS})?"),
    "test": re.compile(rf"_?(queue_|new_)?(test|contains)({_OTHERS}|_of|_of_one)?"),
    "claim": re.compile(rf"_?claims?({_OTHERS}|_run|_busy)?"),
    "commit": re.compile(rf"_?commits?({_OTHERS}|_run|_call|_to|ted)?|_end_commit"),
}
_OTHER_SUBJECTS: Final = {
    "protocol/pending.py",
    "drivers/renewing.py",
    "operations/whole/loading.py",
}
"""Files in which something else is added: calls, renewals, items of a load."""


class Function(NamedTuple):
    """A function that knows a verb."""

    path: str
    name: str
    lines: int


def functions(package: Path = PACKAGE) -> Iterator[Function]:
    """Yield the functions of the core, except those of the files with other subjects."""
    for layer in LAYERS:
        for file in sorted((package / layer).rglob("*.py")):
            path = str(file.relative_to(package))
            if path in _OTHER_SUBJECTS:
                continue
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield Function(path, node.name, (node.end_lineno or node.lineno) - node.lineno + 1)


def knowing(verb: str, package: Path = PACKAGE) -> list[Function]:
    """Return the functions that know a verb."""
    return [each for each in functions(package) if VERBS[verb].fullmatch(each.name)]


def main() -> None:
    """Print the numbers of functions, files and lines for each verb; with `-v` also the functions.

    A path as the last argument names another copy of the package, to compare with.
    """
    package = Path(sys.argv[-1]) if Path(sys.argv[-1]).is_dir() else PACKAGE
    for verb in VERBS:
        found = knowing(verb, package)
        files, lines = len({each.path for each in found}), sum(each.lines for each in found)
        print(f"{verb:8}{len(found):4} functions in {files:2} files, {lines:4} lines")
        if "-v" in sys.argv[1:]:
            for each in found:
                print(f"    {each.path}: {each.name}, {each.lines} lines")


if __name__ == "__main__":
    main()
