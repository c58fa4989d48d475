"""luacheck over each variant of each script; `make lint` runs it if it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from bloomredis.protocol import scripts

LUA: Final = Path(__file__).parents[2] / "lua"
_SET: Final = re.compile(r"^ *(?:local (?:function )?)?(\w+(?:, \w+)*)(?: =|\(|$)", re.MULTILINE)
_UNUSED: Final = ("211", "221", "231", "241", "311", "331")
"""Warnings of locals that are not set, not read, or set in vain."""


def shared() -> list[str]:
    """Return patterns for what a script may leave unused: what includes and pieces set."""
    sources = scripts.sources()
    texts = [*sources.includes.values(), *sources.pieces.values()]
    names = {name for text in texts for found in _SET.findall(text) for name in found.split(", ")}
    names |= {"READS", "CHECKS_LENGTH"}
    return [f"{warning}/^{name}$" for warning in _UNUSED for name in sorted(names)]


def main() -> int:
    """Check all scripts; return luacheck's exit status."""
    luacheck = shutil.which("luacheck")
    if luacheck is None:
        print("luacheck (Debian's lua-check) is not installed: the scripts are not checked")  # noqa: T201 - a command
        return 0
    with tempfile.TemporaryDirectory() as directory:
        for verb in scripts.verbs():
            for variant in scripts.variants(verb):
                path = Path(directory, ".".join((verb, *variant, "lua")))
                path.write_text(scripts.assemble(verb, variant))
        options = ["--quiet", "--no-color", "--codes", "--config", str(LUA / ".luacheckrc")]
        command = [luacheck, *options, directory, "--ignore", *shared()]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
