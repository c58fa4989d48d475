"""Workers of Celery in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from tests.support.readme import ROOT


@contextmanager
def worker(name: str, processes: int = 2) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker of some processes, in a group of its own."""
    command = [sys.executable, "-m", "celery", "-A", "tests.contrib.tasks", "worker", "-n", name]
    process = subprocess.Popen(
        [*command, "-c", str(processes), "--loglevel", "ERROR", "--without-gossip", "--without-mingle"],
        cwd=ROOT,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"C_FORCE_ROOT": "1"},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        _forget_consumers()


def _forget_consumers() -> None:
    """End connections that wait for a message: a child that is dying keeps those of its parent open."""
    with redis.Redis(unix_socket_path=os.environ["BLOOMREDIS_TEST_SOCKET"]) as client:
        for each in client.client_list():
            if "b" in each["flags"]:
                client.client_kill_filter(_id=each["id"])
