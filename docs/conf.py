"""Sphinx's configuration for the pages of this folder."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

_PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]

project = author = "bloomredis"
version = release = _PROJECT["version"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"bloomredis {version}"
html_copy_source = False
html_show_copyright = False
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["pages.css"]
_SOURCE = _PROJECT["urls"]["Source"]
html_theme_options = {} if ".invalid" in _SOURCE else {"source_view_link": f"{_SOURCE}docs/{{filename}}"}

myst_heading_anchors = 3
myst_html_meta = {"description": _PROJECT["description"]}
# The copy button of a console block copies the commands alone.
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
copybutton_remove_prompts = True

default_role = "code"  # of docstrings
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_class_signature = "mixed"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 70
# Signatures show these names, which the reference explains.
_ALIASES = (
    "AnyLayout",
    "Columns",
    "File",
    "Hook",
    "Item",
    "OnFull",
    "OnLost",
    "OwnLayout",
    "Progress",
    "Seconds",
)
autodoc_type_aliases = {name: name for name in _ALIASES}
# The frameworks of the adapters need not be installed to build the pages.
autodoc_mock_imports = [
    *("aiokafka", "asgiref", "celery", "confluent_kafka", "datatrove", "django", "dramatiq", "fastapi"),
    *("faststream", "kombu", "opentelemetry", "prometheus_client", "pyarrow", "pytest", "scrapy", "twisted"),
]


_PLAINER = {
    r"TypeAliasForwardRef\('(\w+)'\)": r"\1",
    r"\bDriven\b": "Filter",
    r"\*bare: ~?Never|\*bare: Never": "*",
}
"""Patterns of private names in signatures, and the text that replaces them."""


_SEARCHES = tomllib.loads(Path(__file__).with_name("searches.toml").read_text("utf-8"))


def setup(app: Any) -> None:
    """Plain names in signatures, words for the search, links to methods."""
    app.connect("autodoc-process-signature", _named)
    app.connect("doctree-read", _searched)
    app.connect("doctree-resolved", _linked)


def _searched(app: Any, page: Any) -> None:
    """Put the words of `searches.toml` into the index, where the search prefers them to words of the text."""
    words = [("single", word, "", "main", None) for word in _SEARCHES.get(app.env.docname, ())]
    page.append(import_module("sphinx.addnodes").index(entries=words))


def _linked(app: Any, page: Any, docname: str) -> None:
    """Let the tables of the reference link to the methods, not to the tops of their pages."""
    if docname != "reference":
        return
    methods = {
        (document, name.rpartition(".")[2]): anchor
        for name, _, kind, document, anchor, _ in app.env.get_domain("py").get_objects()
        if kind == "method"
    }
    for link in page.findall(import_module("docutils.nodes").reference):
        document = link.get("refuri", "").removesuffix(".html")
        if anchor := methods.get((document, link.astext())):
            link["refuri"] += f"#{anchor}"


def _named(*event: Any) -> tuple[str | None, ...]:
    *_, signature, result = event
    return _plain(signature), _plain(result)


def _plain(text: str | None) -> str | None:
    for pattern, words in _PLAINER.items():
        text = text and re.sub(pattern, words, text)
    return text
