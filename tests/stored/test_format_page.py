"""lua/FORMAT.md: its examples are in the vectors, and the names in it exist."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path
from typing import Final

import pytest

from bloomredis.protocol import scripts
from tests.support.values import for_each
from tests.support.vectors import VECTORS

pytestmark = pytest.mark.docs

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "lua" / "FORMAT.md").read_text("utf-8")
FILES: Final = {path.name: path.read_text("utf-8") for path in VECTORS.glob("*.json")}
EXAMPLES: Final = re.findall(r"^```text\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
LUA: Final = "".join(path.read_text("utf-8") for path in (ROOT / "lua").rglob("*.lua"))


def is_hex(word: str) -> bool:
    return re.fullmatch("(?:[0-9a-f]{2})+", word) is not None


def bytes_of(example: str) -> str:
    """Return the bytes at the start of an example's lines."""
    return "".join(word for line in example.splitlines() for word in takewhile(is_hex, line.split()))


@for_each("example", EXAMPLES)
def test_each_example_is_in_the_vectors(example: str) -> None:
    """Its bytes are part of a vector, which other tests compare with the library."""
    assert any(bytes_of(example) in text for text in FILES.values())


def test_examples_of_bits_are_in_the_vectors() -> None:
    """The bits of items in the examples are in the vectors."""
    bits = re.findall(r"\d+(?:,\s\d+){5,}", PAGE)
    assert len(bits) == 2
    for each in bits:
        assert f"[{' '.join(each.split())}]" in FILES["format.json"]


def test_the_files_of_vectors_are_named() -> None:
    """All existing files are named, except those of other systems."""
    named = set(re.findall(r"^\| `(\w+\.json)`", PAGE, re.MULTILINE))
    assert named == {name for name, text in FILES.items() if "FORMAT.md" in text} | {
        "stacks.json",
        "frozen.json",
    }
    for path in re.findall(r"`((?:tests|bloomredis|lua)/[\w./]*)`", PAGE):
        assert (ROOT / path).exists(), path


def test_the_words_of_refusals_are_those_of_the_scripts() -> None:
    """The page lists exactly the first words of the scripts' error replies."""
    assert set(re.findall(r"^\| `(BLOOM[A-Z]+)`", PAGE, re.MULTILINE)) == set(re.findall(r"BLOOM[A-Z]+", LUA))


def test_scripts_that_are_named_exist() -> None:
    """A word with an underscore in code style is a script."""
    named = set(re.findall(r"`([a-z]+_[a-z_]+)`", PAGE))
    assert named <= set(scripts.verbs())
    assert len(named) >= 8
