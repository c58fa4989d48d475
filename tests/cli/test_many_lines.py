"""`bloomredis dedupe` with a file of a gigabyte: 50,000,000 lines, far more than its first layer is for."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice, takewhile
from pathlib import Path

import numpy as np
import pytest

from bloomredis import ScalingBloomFilter
from tests.support.commands import COMMAND, ENVIRONMENT
from tests.support.servers import Server

pytestmark = [pytest.mark.long, pytest.mark.one_in(4), pytest.mark.timeout(1200)]

LINES = 50_000_000
WIDTH = 20
BLOCK = 1_000_000
TAKEN = 500_000
"""Lines after which a run is stopped, about."""

MOST_KIB = 560 * 1024
"""Twice the size that `bloomredis plan 50M --error-rate 1e-6` prints, and the program."""

MEASURED = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], check=False)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(done.returncode)
"""
"""A small program that runs another and prints its memory: a child starts with its parent's size."""

STOPS = {
    "full disk": "ulimit -f {blocks}; exec {command} > {out}",
    "closed pipe": "{command} | dd bs=20 count={taken} iflag=fullblock of={out} status=none",
    "Ctrl-C": "{command} > {out} & child=$!"
    "; while [ $(stat -c %s {out}) -lt {size} ]; do sleep 0.05; done; kill -INT $child; wait $child",
}
"""Programs of a shell that stop a run."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file of 1 GB, of different lines."""
    path = tmp_path_factory.mktemp("gigabyte") / "log"
    numbers = b"".join(b"%019d\n" % number for number in range(BLOCK))
    block = np.frombuffer(numbers, np.uint8).reshape(BLOCK, WIDTH).copy()
    with path.open("wb") as file:
        for millions in range(LINES // BLOCK):
            block[:, :13] = np.frombuffer(b"%013d" % millions, np.uint8)
            file.write(block.data)
    yield path
    path.unlink()


def test_a_gigabyte(log: Path, tmp_path: Path) -> None:
    """Without options nearly all lines are printed, silently, in the memory of such a filter."""
    command = [sys.executable, "-c", MEASURED, *COMMAND, "dedupe", str(log)]
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, env=ENVIRONMENT, check=True)
    assert int(done.stderr) < MOST_KIB  # no other message
    missing = LINES - (tmp_path / "out").stat().st_size / WIDTH
    (tmp_path / "out").unlink()
    assert 0 <= missing <= 100  # 50 at the error rate of 1e-6


@pytest.mark.parametrize("stop", STOPS)
def test_a_stop_in_a_gigabyte(any_server: Server, log: Path, tmp_path: Path, stop: str) -> None:
    """However a run is stopped: it has marked the lines that were printed, and those that it told."""
    command = shlex.join([*COMMAND, "dedupe", "--url", any_server.url, "--name", "x", str(log)])
    size = TAKEN * WIDTH
    program = STOPS[stop].format(
        command=command, out=tmp_path / "out", taken=TAKEN, size=size, blocks=size // 1024
    )
    shell = ["/bin/bash", "-mc", program]  # -m: a job in the background hears SIGINT
    done = subprocess.run(shell, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False)
    told = sum(map(int, re.findall(rb"([\d,]+) lines? (?:is|are) marked", done.stderr.replace(b",", b""))))
    taken = (tmp_path / "out").read_bytes()
    whole, rest = len(taken) // WIDTH, islice(_lines(log), len(taken) // WIDTH + told, None)
    with any_server.client() as client, ScalingBloomFilter.open(client, "x") as seen:
        marked = sum(1 for _ in takewhile(bool, seen.contains_many(islice(_lines(log), whole + told))))
        beyond = sum(seen.contains_many(islice(rest, 50_000)))
    assert TAKEN * 0.9 < whole < LINES / 2
    assert (whole + told - marked, beyond) == (0, 0)


def _lines(log: Path) -> Iterator[bytes]:
    with log.open("rb") as file:
        for line in file:
            yield line.removesuffix(b"\n")
