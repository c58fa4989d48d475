"""Latency for another client: a process that sends PINGs while a workload runs."""

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
"""Seconds between a reply and the next PING, so that the probe itself adds little load."""


class LatencyProbe:
    """The handle of that process; it sends PINGs inside `with probe:`, and then `times` has the latencies."""

    def __init__(self, path: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.runner.latency_probe", path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.times: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._send_line("begin")
        self._read_line()
        return self

    def __exit__(self, *_: object) -> None:
        self._send_line("end")
        self.times = json.loads(self._read_line())

    def close(self) -> None:
        """End the process."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait(timeout=10)

    def _send_line(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def serve(path: str, orders: IO[str]) -> None:
    """Send PINGs from each odd line of `orders` to the next even one, then print the latencies."""
    gc.disable()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        while orders.readline():
            ping(server)  # not counted: caches may be cold
            print("pinging", flush=True)
            times = [ping(server)]
            while not select.select([orders], [], [], _PAUSE)[0]:
                times.append(ping(server))
            orders.readline()
            times.sort()
            rank = len(times) * 99 // 100
            print(json.dumps({"worst": times[-1], "p99": times[rank], "pings": len(times)}), flush=True)


def ping(server: socket.socket) -> float:
    """Send PING over a bare socket and return the seconds until its reply."""
    begin = time.perf_counter()
    server.sendall(b"PING\r\n")
    if not server.recv(64).startswith(b"+PONG"):
        raise RuntimeError("the server does not answer PING")
    return time.perf_counter() - begin


if __name__ == "__main__":
    serve(sys.argv[1], sys.stdin)
