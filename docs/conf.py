"""Sphinx's configuration for the pages of this folder."""

from __future__ import annotations

import tomllib
from pathlib import Path

_PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"

project = author = "bloomredis"
version = release = tomllib.loads(_PYPROJECT.read_text("utf-8"))["project"]["version"]
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"bloomredis {version}"
html_copy_source = False

myst_heading_anchors = 3
default_role = "code"  # of docstrings
autodoc_default_options = {"members": True, "inherited-members": True, "member-order": "bysource"}
autodoc_class_signature = "separated"
autodoc_typehints = "none"
autodoc_preserve_defaults = True
# Frameworks of the adapters, which the pages do not need.
autodoc_mock_imports = [
    *("aiokafka", "celery", "confluent_kafka", "datatrove", "dramatiq", "fastapi", "faststream"),
    *("opentelemetry", "prometheus_client", "pyarrow", "scrapy", "twisted"),
]
