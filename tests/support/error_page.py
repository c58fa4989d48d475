"""The page docs/errors.md, made of all errors that the library constructs.

`python -m tests.support.error_page` writes it.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

import bloomredis
from bloomredis import errors
from bloomredis.operations.items import outcomes
from bloomredis.protocol.explanations import FAILURES, REFUSALS, WayOut
from bloomredis.protocol.replies import OutcomeMatters, Unconfirmed, failed, outcome_unknown, refused_unknown

PACKAGE: Final = Path(bloomredis.__file__).parent
PAGE: Final = PACKAGE.parent / "docs/errors.md"
CLASSES: Final = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.BloomError)
}
UNKNOWN: Final = "…"
_NOTHING: Final = f"{UNKNOWN}; then"
_HEAD: Final = """\
# Errors and their ways out

An error of the library has the attributes `problem`, which says what was found; `advice`, the way out in a
program; and `command`, the way out for a user of the [command](command-line.md). If `transient` is True, the
reason may end by itself, so the same call may succeed later.

[Troubleshooting](troubleshooting.md) has the causes of frequent errors, and
[Guarantees](guarantees.md#errors-by-who-must-act) says who has to act. `'seen'` stands for the name
of a filter, and `…` for what differs from case to case. Of two ways out that `; or` joins, an error
names only one.
"""


class Row(NamedTuple):
    """An error, as a reader of the page meets it."""

    kind: str
    problem: str
    advice: str
    command: str
    transient: str


class Module(NamedTuple):
    """A module of the library, and its syntax tree."""

    name: str
    tree: ast.Module
    namespace: ModuleType


@cache
def modules() -> list[Module]:
    """Return the modules of the library without the command and the adapters."""
    return [*_modules()]


def _modules() -> Iterator[Module]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if not {"cli", "contrib", "errors", "__main__"} & {*parts}:
            name = ".".join(parts).removesuffix(".__init__")
            yield Module(name, ast.parse(path.read_text("utf-8")), importlib.import_module(name))


def constructions(module: Module) -> Iterator[ast.Call]:
    """Yield each construction of a public error."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES:
            yield node


@cache
def rows() -> list[Row]:
    """Return all errors with their ways out, in the order of the classes."""
    found = {_written(module, call) for module in modules() for call in constructions(module)}
    found = {row for row in found if row.advice.strip(_NOTHING)} | {_made(error) for error in _composed()}
    for word, (meaning, advice, command) in REFUSALS.items():
        problem = f"the server refused ({word}) a call on 'seen': {meaning} (the server said: {UNKNOWN})"
        found.add(_made(errors.ServerRefusedError(problem, word, advice=advice, command=command)))
    texts: dict[WayOut, list[str]] = {}
    for text, way_out in FAILURES.items():
        texts.setdefault(way_out, []).append(text)
    for (advice, command, transient), own in texts.items():
        problem = f"a call on 'seen' got no answer ({UNKNOWN} {' or '.join(own)} {UNKNOWN})"
        ways: dict[str, Any] = {"advice": advice, "command": command, "transient": transient}
        found.add(_made(errors.ConnectionFailedError(problem, **ways)))
    order = list(CLASSES)
    return sorted(found, key=lambda row: (order.index(row.kind), row))


def page() -> str:
    """Return the text of the page."""
    parts = [_HEAD]
    for kind, own in groupby(rows(), lambda row: row.kind):
        parts += [
            f"## {kind}\n",
            "| text | transient | in Python | on the command line |",
            "|---|---|---|---|",
        ]
        for row in own:
            command = "the same" if row.command == row.advice else row.command
            parts.append(f"| {row.problem} | {row.transient} | {row.advice} | {command} |")
        parts.append("")
    return "\n".join(parts)


def _composed() -> Iterator[errors.BloomError]:
    """Yield errors that functions compose of the parts of other errors."""
    yield failed(UNKNOWN, "seen")
    lost, refused = failed(UNKNOWN), errors.ServerRefusedError(UNKNOWN, "OOM", advice=UNKNOWN)
    for advice in (outcomes.ASK_AGAIN, outcomes.ON_THE_SAME_OBJECT, OutcomeMatters("seen").advice):
        yield outcome_unknown(lost, "seen", advice)
    yield outcome_unknown(
        Unconfirmed(f"only 0 of 1 replicas confirmed it within {UNKNOWN} ms"), "seen", advice
    )
    yield refused_unknown(refused, outcomes.ASK_AGAIN)
    for texts in ((), (outcomes.UNCOUNTED,)):
        try:
            outcomes.raise_unknown("seen", None, [None], *texts)
        except errors.OutcomeUnknownError as final:
            yield final
    yield outcomes.interrupted_by(refused, "add_many", [True], ["a", "b"], ())


def _made(error: errors.BloomError) -> Row:
    transient = (
        "unless `final`" if error.transient and hasattr(error, "final") else _yes(is_true=error.transient)
    )
    return Row(type(error).__name__, error.problem, error.advice, error.command, transient)


def _written(module: Module, call: ast.Call) -> Row:
    """Return the error that the source of a call describes."""
    assert isinstance(call.func, ast.Name)
    given = {each.arg: each.value for each in call.keywords}
    problem, advice, command = (
        _text(node, module) if node is not None else ""
        for node in (call.args[0] if call.args else None, given.get("advice"), given.get("command"))
    )
    kind: Any = CLASSES[call.func.id]
    if hasattr(kind, "final"):
        transient = "unless `final`"
    else:
        transient = _yes(is_true=kind.transient is True and "transient" not in given)
    return Row(call.func.id, problem, advice, command or advice, transient)


def _yes(*, is_true: bool) -> str:
    return "yes" if is_true else "no"


def _text(node: ast.expr, module: Module) -> str:
    """Return the text of an expression, with `…` for parts that are known only at run time."""
    if isinstance(node, ast.JoinedStr):
        return re.sub(f"{UNKNOWN}+", UNKNOWN, "".join(_text(part, module) for part in node.values))
    if isinstance(node, ast.FormattedValue):
        is_name = ast.unparse(node.value).endswith("name") and node.conversion == ord("r")
        return "'seen'" if is_name else _text(node.value, module)
    if isinstance(node, ast.IfExp):
        both = [_text(each, module) for each in (node.body, node.orelse)]
        return "; or ".join(text for text in both if text.strip(_NOTHING))
    try:  # a constant of the module
        value: object = eval(compile(ast.Expression(node), "", "eval"), vars(module.namespace))  # noqa: S307
    except NameError:
        return UNKNOWN
    return value if isinstance(value, str) else UNKNOWN


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
