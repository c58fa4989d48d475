"""The public names and signatures of both halves are those of `contract.toml`, and no older name is left."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

import bloomredis
import bloomredis.asyncio
from tests.support.values import for_each

pytestmark = pytest.mark.lint

ROOT: Final = Path(__file__).parents[1]
CONTRACT: Final = tomllib.loads((ROOT / "tests" / "contract.toml").read_text("utf-8"))
HALVES: Final = (bloomredis, bloomredis.asyncio)
CLASSES: Final = [name for name in CONTRACT["module"]["bloomredis.asyncio"].split() if "BloomFilter" in name]


def parameters(function: Any) -> list[inspect.Parameter]:
    """Return the parameters of a method without `self`."""
    return [each for each in inspect.signature(function).parameters.values() if each.name != "self"]


def signature(function: Any) -> str:
    """Return the parameters as the contract writes them."""
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in parameters(function)]
    return str(inspect.Signature(bare))[1:-1]


@for_each("module", CONTRACT["module"])
def test_each_module_has_its_names(module: str) -> None:
    """Each name is there, and in the list of the module's names."""
    found = importlib.import_module(module)
    for name in CONTRACT["module"][module].split():
        assert hasattr(found, name), name
        assert name in found.__all__, name


@for_each("half", HALVES)
@for_each("name", CONTRACT["filter"])
def test_each_method_has_its_signature(half: Any, name: str) -> None:
    """In each class that has the method, in both halves."""
    for each in CLASSES:
        method = getattr(getattr(half, each), name, None)
        if each in CONTRACT["missing"].get(name, ()):
            assert method is None, each
        else:
            assert signature(method) == CONTRACT["filter"][name], each


@for_each("half", HALVES)
@for_each("name", CONTRACT["claim"])
def test_a_claim_takes_one_argument_by_position(half: Any, name: str) -> None:
    """A number after the item could be anything; the lease is 30 seconds unless it is given."""
    for each in CLASSES:
        first, *others = parameters(getattr(getattr(half, each), name))
        given = {other.name: other for other in others}
        assert [first.name, *(other for other in CONTRACT["claim"][name][1:] if other in given)] == (
            CONTRACT["claim"][name]
        )
        assert {other.kind for other in others} == {inspect.Parameter.KEYWORD_ONLY}
        assert (given["lease"].default, given["owner"].default) == (30.0, None)


@for_each("half", HALVES)
def test_a_claim_object_has_its_calls(half: Any) -> None:
    """They have the same signatures in both halves."""
    for name, wanted in CONTRACT["claim_object"].items():
        assert signature(getattr(half.Claim, name)) == wanted


def test_connect_is_no_coroutine() -> None:
    """Both take a URL and the client's options; `embedded` has none."""
    for half in HALVES:
        assert signature(half.connect) == "url, **options"
        assert not inspect.iscoroutinefunction(half.connect)
    assert not hasattr(importlib.import_module("bloomredis.embedded"), "connect")


@for_each("name", CONTRACT["errors"])
def test_each_error_has_its_attributes(name: str) -> None:
    """Also if it is made without arguments."""
    error = getattr(bloomredis, name)()
    for attribute in CONTRACT["errors"][name].split():
        assert hasattr(error, attribute), attribute


def test_a_name_in_use_is_a_mismatch() -> None:
    """So a program that catches the older error catches this one."""
    assert issubclass(bloomredis.FilterExistsError, bloomredis.FilterMismatchError)


def test_no_older_name_is_left() -> None:
    """Neither in the source nor in a page, a test, a benchmark or the Lua."""
    own = {"tests/contract.toml", "tests/test_contract.py"}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout  # noqa: S607 - as in .ci
    pattern = re.compile("|".join(CONTRACT["old"]["source"]))
    left = []
    for name in listed.split():
        if name in own or not name.endswith((".py", ".md", ".lua", ".toml", ".json", ".jsonl", ".svg")):
            continue
        for number, line in enumerate((ROOT / name).read_text("utf-8").splitlines(), 1):
            if pattern.search(line):
                left.append(f"{name}:{number}: {line.strip()[:100]}")
    assert left == []
