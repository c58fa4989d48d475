"""How long another client waits: a process that sends PING after PING while something else runs."""

from __future__ import annotations

import gc
import json
import select
import socket
import subprocess
import sys
import time
from typing import IO, Final, Self

_PAUSE: Final = 0.0002
"""Seconds between a reply and the next PING: without it the probe would be a load of its own."""


class Pinger:
    """The handle of that process; `with pinger:` pings, and `times` has what it saw."""

    def __init__(self, path: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.pinging", path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.times: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._say("begin")
        self._hear()
        return self

    def __exit__(self, *_: object) -> None:
        self._say("end")
        self.times = json.loads(self._hear())

    def close(self) -> None:
        """End the process."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait(timeout=10)

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def _hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def serve(path: str, orders: IO[str]) -> None:
    """Ping between two lines of `orders`, again and again, and print what was seen."""
    gc.disable()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        while orders.readline():
            _ping(server)  # the first one may find a cold process
            print("pinging", flush=True)
            times = [_ping(server)]
            while not select.select([orders], [], [], _PAUSE)[0]:
                times.append(_ping(server))
            orders.readline()
            times.sort()
            rank = len(times) * 99 // 100
            print(json.dumps({"worst": times[-1], "p99": times[rank], "pings": len(times)}), flush=True)


def _ping(server: socket.socket) -> float:
    begin = time.perf_counter()
    server.sendall(b"PING\r\n")
    if not server.recv(64).startswith(b"+PONG"):
        raise RuntimeError("the server does not answer PING")
    return time.perf_counter() - begin


if __name__ == "__main__":
    serve(sys.argv[1], sys.stdin)
