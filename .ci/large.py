"""A check of the sizes of files: the arguments, or all files of the repository.

Whoever clones the repository loads every file that was ever in it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
MOST: Final = 500_000
"""Bytes."""


def main(names: list[str]) -> int:
    """Print the files that are too large; return 1 if there are any."""
    if not names:
        listed = subprocess.check_output(("git", "ls-files", "-z"), cwd=ROOT, text=True)
        names = [name for name in listed.split("\0") if name]
    large = [name for name in names if (ROOT / name).is_file() and (ROOT / name).stat().st_size > MOST]
    for name in large:
        print(f"{name} has more than {MOST:,} bytes: make it when it is needed, or store a part of it")
    return bool(large)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
