"""The package's page on an index: README.md, with relative links turned into links to the source."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = re.compile(r"\]\((?!https?:|#)")
"""The beginning of a relative link or picture."""


def check_urls(urls: dict[str, str]) -> None:
    """Raise `ValueError` for placeholders among the project's URLs, in a build for a release."""
    left = [name for name, url in urls.items() if ".invalid" in url]
    if left and os.environ.get("RELEASE"):
        raise ValueError(
            f"[project.urls] in pyproject.toml has placeholders: {', '.join(left)}; give real URLs"
        )


class PackagePage(MetadataHookInterface):
    """Metadata hook that completes relative links with the URL of the source."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the readme of a distribution."""
        check_urls(metadata["urls"])
        text = (Path(self.root) / "README.md").read_text("utf-8")
        whole = RELATIVE.sub(f"]({metadata['urls']['Source']}", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": whole}
