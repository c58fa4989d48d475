"""`bloomredis dedupe` with more lines than its first layer is planned for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import COMMAND, ENVIRONMENT

MOST_KIB = 120 * 1024
MEASURED = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], check=False)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(done.returncode)
"""
"""A small program that runs another and prints its memory: a child starts with its parent's size."""


@pytest.mark.long
def test_three_million_lines(tmp_path: Path) -> None:
    """Without options nearly all of 3,000,000 different lines are printed, silently, in little memory."""
    lines = 3_000_000
    with (tmp_path / "in").open("w") as given:
        given.writelines(f"{number}\n" for number in range(lines))
    command = [sys.executable, "-c", MEASURED, *COMMAND, "dedupe"]
    with (tmp_path / "in").open("rb") as read, (tmp_path / "out").open("wb") as out:
        done = subprocess.run(
            command, stdin=read, stdout=out, stderr=subprocess.PIPE, env=ENVIRONMENT, check=True
        )
    assert int(done.stderr) < MOST_KIB  # no other message
    assert (tmp_path / "out").read_bytes().count(b"\n") >= lines - 1000
