"""Adapters without their frameworks."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import pytest

from tests.support.readme import ADAPTERS, RECIPES, ROOT

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
WITH_FRAMEWORK = sorted(path.stem for path in ADAPTERS.glob("*.py") if EXTRAS.get(path.stem))
BARE = """
import sys

LIBRARY = {*sys.stdlib_module_names, "bloomredis", "redis", "mmh3", "numpy"}
FINDERS = sys.meta_path[:]

class Bare:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in LIBRARY:
            return next(filter(None, (each.find_spec(name, path, target) for each in FINDERS)), None)

sys.meta_path[:] = [Bare()]
import bloomredis.contrib.%s
"""
"""A program that imports an adapter although only the library itself is installed."""


@pytest.mark.parametrize("adapter", WITH_FRAMEWORK)
def test_an_import_says_what_to_install(adapter: str) -> None:
    """The last line of the traceback names the extra."""
    done = subprocess.run(
        [sys.executable, "-c", BARE % adapter], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: bloomredis.contrib.{adapter} needs ")
    assert last.endswith(f"pip install 'bloomredis[{adapter}]'")


@pytest.mark.parametrize("adapter", sorted(path.stem for path in ADAPTERS.glob("[a-z]*.py")))
def test_each_adapter_has_a_page(adapter: str) -> None:
    """The page has an example that a user can paste."""
    assert "```python\n" in (ROOT / "docs" / f"{adapter}.md").read_text()


OF_ITEMS = ({path.stem for path in ADAPTERS.glob("[a-z]*.py")} | RECIPES) - {"prometheus", "opentelemetry"}
"""The pages of adapters that handle items."""


@pytest.mark.parametrize("page", sorted(OF_ITEMS))
def test_each_page_says_what_happens_to_an_item(page: str) -> None:
    """A table has a row for a death, a restart of the server, a repeat, and a lost filter."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    rows = "\n".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| "))
    for what in ("dies|killed", "server (restarts|is away)", "again", "filter is lost"):
        assert re.search(what, rows), what
