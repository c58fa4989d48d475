"""The package's page on an index: README.md, with relative links turned into links to the source."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = re.compile(r"\]\((?!https?:|#)")
"""The beginning of a relative link or picture."""


def urls_at(home: str, version: str) -> dict[str, str]:
    """Return the project's URLs, given the address of its repository, for a version."""
    home = home.rstrip("/")
    source = f"{home}/blob/v{version}/"
    return {
        "Documentation": f"{source}docs/index.md",
        "Changes": f"{source}CHANGELOG.md",
        "Source": source,
        "Issues": f"{home}/issues",
    }


def check_urls(urls: dict[str, str]) -> None:
    """Raise `ValueError` for placeholders among the project's URLs, in a build for a release."""
    left = [name for name, url in urls.items() if ".invalid" in url]
    if left and os.environ.get("RELEASE"):
        raise ValueError(
            f"[project.urls] in pyproject.toml has placeholders: {', '.join(left)}; give real URLs there, or "
            "the address of the repository in HOME_URL"
        )


class PackagePage(MetadataHookInterface):
    """Metadata hook that gives a distribution its URLs, and completes the relative links of its readme."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the URLs and the readme of a distribution."""
        if home := os.environ.get("HOME_URL"):
            metadata["urls"].update(urls_at(home, metadata["version"]))
        check_urls(metadata["urls"])
        text = (Path(self.root) / "README.md").read_text("utf-8")
        whole = RELATIVE.sub(f"]({metadata['urls']['Source']}", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": whole}
