"""An editor shows the whole text of each method, option and field, in both halves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import bloomredis
import bloomredis.asyncio
from bloomredis import FilterInfo
from tests.support.language_server import LanguageServer, language_server
from tests.support.values import for_each

pytestmark = pytest.mark.types

HALVES = {"sync": bloomredis, "aio": bloomredis.asyncio}
KINDS = (
    "BloomFilter",
    "CountingBloomFilter",
    "RotatingBloomFilter",
    "ScalingBloomFilter",
    "ShardedBloomFilter",
)
METHODS = ("add", "claim", "dedupe", "open", "save")


def keywords(cls: Any) -> list[str]:
    """Return the options of a constructor."""
    return [each for each in inspect.signature(cls).parameters if each not in {"client", "name"}]


def program() -> Iterator[str]:
    """Yield the lines of a program with every class, method, option and field."""
    yield "from typing import Any"
    yield "from bloomredis import FilterInfo"
    for half, module in HALVES.items():
        yield f"import {module.__name__} as {half}"
        yield f"def {half}_program(x: Any, {half}_seen: {half}.BloomFilter[Any]) -> None:"
        yield from (f"    {half}_seen.{method}" for method in METHODS)
        for name in KINDS:
            yield f"    {half}.{name}"
            for each in keywords(getattr(module, name)):
                yield f"    {half}.{name}(x, x, {each}=x)"
    yield "def fields(info: FilterInfo) -> None:"
    yield from (f"    info.{each.name}" for each in fields(FilterInfo))


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    path: Path = tmp_path_factory.mktemp("editor") / "program.py"
    path.write_text("\n".join(program()) + "\n", "utf-8")
    with language_server(path) as server:
        yield server


def words(text: str) -> str:
    """Return a text without its line breaks, and without the case of its first letter."""
    plain = re.sub(r"\s+", " ", text).strip()
    return plain[:1].lower() + plain[1:]


def described(doc: str) -> dict[str, str]:
    """Return the text of each parameter or field in a docstring."""
    items = re.split(r"^:(?:param|ivar|raises) ", doc, flags=re.MULTILINE)[1:]
    return {name: words(text) for name, _, text in (each.partition(":") for each in items)}


@for_each(("half", "module"), list(HALVES.items()))
def test_a_method_has_its_whole_docstring(editor: LanguageServer, half: str, module: ModuleType) -> None:
    """It is the one that `help()` shows."""
    for method in METHODS:
        shown = words(editor.hover(f"    {half}_seen.{method}", method))
        assert words(inspect.getdoc(getattr(module.BloomFilter, method)) or "")[1:] in shown, method


@for_each(("half", "module"), list(HALVES.items()))
def test_a_class_has_its_whole_docstring(editor: LanguageServer, half: str, module: ModuleType) -> None:
    """It is the one that `help()` shows, with every option."""
    for name in KINDS:
        shown = words(editor.hover(f"    {half}.{name}", name))
        assert words(inspect.getdoc(getattr(module, name)) or "")[1:] in shown, name


@for_each(("half", "module"), list(HALVES.items()))
def test_an_option_has_its_text(editor: LanguageServer, half: str, module: ModuleType) -> None:
    """It is the text of the option in the docstring of the class."""
    for name in KINDS:
        cls = getattr(module, name)
        texts = described(inspect.getdoc(cls) or "")
        for each in keywords(cls):
            shown = editor.hover(f"    {half}.{name}(x, x, {each}=", f"{each}=")
            kind, _, text = shown.partition("\n")
            assert f" {each}: " in kind
            assert words(text) == texts[each]


def test_a_field_of_the_info_has_its_text(editor: LanguageServer) -> None:
    """It is the text of the field in the docstring of the class."""
    texts = described(inspect.getdoc(FilterInfo) or "")
    assert texts.keys() == {each.name for each in fields(FilterInfo)}
    for name, text in texts.items():
        assert words(editor.hover(f"    info.{name}", name).partition("\n")[2]) == text
