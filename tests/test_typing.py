"""The package's types as type checkers show them to users, in programs that are checked but never run."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

import bloomredis
import bloomredis.asyncio
from bloomredis import compat, testing
from tests.support.readme import examples
from tests.support.values import for_each

PROGRAMS: Final = Path(__file__).with_name("typing")
MARK: Final = re.compile(r"  # (type|pyright): ignore\[([\w, -]+)\](?: - .*)?")
Finding = tuple[str, int, str]
"""A file, a line and the code of a checker's finding."""


def marked(checker: str) -> Iterator[Finding]:
    """Yield the findings that the programs expect of a checker: `type` for mypy, or `pyright`."""
    for program in PROGRAMS.glob("*.py"):
        for number, line in enumerate(program.read_text().splitlines(), 1):
            for whose, rules in MARK.findall(line):
                if whose == checker:
                    yield from ((program.name, number, rule) for rule in rules.split(", "))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A separate project with the programs, without their marks, and with the examples of the pages."""
    for program in PROGRAMS.glob("*.py"):
        (tmp_path / program.name).write_text(MARK.sub("", program.read_text()))
    for number, example in enumerate(examples()):
        (tmp_path / f"example_{number}.py").write_text(example)
    shutil.copy(PROGRAMS / "pyrightconfig.json", tmp_path)
    return tmp_path


def pyright(folder: Path) -> Iterator[Finding]:
    """Yield the findings of pyright under the folder's configuration."""
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(list(folder.glob("*.py"))), done.stderr
    for each in report["generalDiagnostics"]:
        file, rule = Path(each["file"]).name, each.get("rule", each["message"])
        # redis-py's own types are incomplete, and each section of a page may repeat its imports.
        allowed = rule.startswith("reportUnknown") or rule == "reportDuplicateImport"
        if not (file.startswith("example") and allowed):
            yield file, each["range"]["start"]["line"] + 1, rule


def mypy(folder: Path) -> Iterator[Finding]:
    """Yield the findings of mypy in its strict mode."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--output=json", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    for line in done.stdout.splitlines():
        each = json.loads(line)
        file = Path(each["file"]).name
        if not (file.startswith("example") and each["code"] == "no-untyped-call"):  # incomplete types
            yield file, each["line"], each["code"]


@pytest.mark.types
@pytest.mark.parametrize(("checker", "mark"), [(pyright, "pyright"), (mypy, "type")])
def test_programs_are_judged_as_they_say(
    folder: Path, checker: Callable[[Path], Iterator[Finding]], mark: str
) -> None:
    """A checker rejects every marked line, for the reason in its mark, and accepts all others."""
    assert sorted(set(checker(folder))) == sorted(marked(mark))


def verbs(module: ModuleType) -> Iterator[str]:
    """Yield the public names of a module, and the public methods of its classes."""
    for name in module.__all__:
        public = getattr(module, name)
        yield name
        is_record = is_dataclass(public) or hasattr(public, "_fields")  # a named tuple
        if isinstance(public, type) and not (issubclass(public, Exception) or is_record):
            yield from (each for each in dir(public) if not each.startswith("_"))


@for_each(
    ("module", "programs"),
    [
        (bloomredis, ["program.py"]),
        (testing, ["program.py"]),
        (bloomredis.asyncio, ["aio_program.py"]),
        (compat, ["compat_program.py"]),
    ],
)
def test_programs_use_all_that_is_public(module: ModuleType, programs: list[str]) -> None:
    """The programs use every public class, method and layout."""
    trees = [ast.parse((PROGRAMS / program).read_text()) for program in programs]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    used |= {node.id for node in nodes if isinstance(node, ast.Name)}
    assert set(verbs(module)) - used == set()


def test_the_pages_have_examples() -> None:
    """Each page has examples, and they use this library."""
    assert len(examples()) >= 15
    assert all("bloomredis" in example for example in examples())
