"""The package's page on an index: README.md, whose relative links lead to the project's source."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = re.compile(r"\]\((?!https?:|#)")
"""The beginning of a link or a picture in this checkout."""


class PackagePage(MetadataHookInterface):
    """Complete relative links with the URL of the source."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the readme of a distribution."""
        text = (Path(self.root) / "README.md").read_text("utf-8")
        whole = RELATIVE.sub(f"]({metadata['urls']['Source']}", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": whole}
