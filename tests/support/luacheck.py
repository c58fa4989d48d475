"""luacheck over each script with its includes; `make lint` runs it if it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bloomredis.protocol import scripts

LUA = Path(__file__).parents[2] / "lua"


def shared() -> list[str]:
    """Return patterns of an include's functions and constants, which a script may leave unused."""
    texts = {path.stem: path.read_text() for path in LUA.glob("*/*.lua")}
    pieces = re.findall("-- paste: (.+)", "".join(texts.values()))
    parts = [texts[path.stem] for path in (LUA / "include").glob("*.lua") if path.stem not in pieces]
    found = re.findall(r"^local (?:function )?(\w+(?:, \w+)*)", "".join(parts), re.MULTILINE)
    return [f"211/^{name}$" for names in found for name in names.split(", ")]


def main() -> int:
    """Check all scripts; return luacheck's exit status."""
    luacheck = shutil.which("luacheck")
    if luacheck is None:
        print("luacheck (Debian's lua-check) is not installed: the scripts are not checked")  # noqa: T201 - a command
        return 0
    with tempfile.TemporaryDirectory() as directory:
        verbs = set(scripts.verbs())
        for verb in verbs:
            # The module's own scripts replace some, which are therefore never assembled for it.
            of_module = () if f"module_{verb}" in verbs else ("module",)
            for kind in ("", "layered", *of_module):
                text = scripts.assemble(verb, layered=kind == "layered", module=kind == "module")
                Path(directory, f"{verb}.{kind}.lua").write_text(text)
        options = ["--quiet", "--no-color", "--codes", "--config", str(LUA / ".luacheckrc")]
        command = [luacheck, *options, directory, "--ignore", *shared()]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
