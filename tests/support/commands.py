"""The command `bloomredis` as a process of its own."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator

COMMAND = (sys.executable, "-m", "bloomredis.cli")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "BLOOMREDIS_URL"} | {
    "LC_ALL": "C",
    "COLUMNS": "80",
}


def run_command(
    *arguments: object, data: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run the command to its end."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=data,
        capture_output=True,
        env=ENVIRONMENT | environment,
        timeout=120,
        check=False,
    )


def printed(*arguments: object, data: bytes = b"") -> bytes:
    """Return what the command printed, having said nothing else and ended well."""
    done = run_command(*arguments, data=data)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


@contextlib.contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Start the command, its three streams being pipes."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)], bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe, env=ENVIRONMENT
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def answer(process: subprocess.Popen[bytes], line: bytes) -> bytes:
    """Send a line and return what comes back."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line)
    assert select.select([process.stdout], [], [], 60)[0], "no answer in a minute"
    return os.read(process.stdout.fileno(), 1000)
