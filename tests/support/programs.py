"""Programs that use an embedded server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import redis

PROGRAM = """
import os, signal, sys
from bloomredis import connect
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where a shell's "&" began the tests
client = connect(sys.argv[1])
print(client.info("server")["process_id"], client.config_get("dir")["dir"], flush=True)
"""
WAIT = "sys.stdin.read()"


def is_alive(pid: int) -> bool:
    """Return whether the process exists."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def server_of(client: redis.Redis) -> tuple[int, Path]:
    """Return the process id of a client's server and its directory."""
    answers: Any = client
    return int(answers.info("server")["process_id"]), Path(answers.config_get("dir")["dir"])


class Program:
    """A program that uses a URL's server, prints the process id and directory, and continues."""

    def __init__(self, url: str, then: str = WAIT, *flags: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *flags, "-c", PROGRAM + then, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def server(self) -> tuple[int, Path]:
        """Wait for the program's first output."""
        pid, directory = self.line().split(maxsplit=1)
        return int(pid), Path(directory)

    def line(self) -> str:
        """Return the next line of the program's output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def end(self, how: signal.Signals | None = None) -> tuple[str, str]:
        """Send the signal, if any, close the input, and return the remaining output."""
        if how is not None:
            self.process.send_signal(how)
        return self.process.communicate(timeout=60)
