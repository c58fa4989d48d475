"""A proxy that lets the server execute a request and then loses the reply."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class LosingProxy:
    """Forwards between a unix socket of its own and a server's; one reply in so many is lost.

    A lost reply is waited for, so the request has been executed, and then the connection to the client
    is closed instead.
    """

    def __init__(self, target: str, directory: Path, share: float, seed: int) -> None:
        self.path = str(directory / "proxy")
        self.lost = 0
        self._target = target
        self._share = share
        self._dice = random.Random(seed)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(200)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
                threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
                threading.Thread(target=self._replies, args=(client, server), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                server.sendall(data)
        _end(client, server)

    def _replies(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if self._dice.random() < self._share:
                    self.lost += 1
                    break
                client.sendall(data)
        _end(client, server)


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def losing(target: str, directory: Path, share: float = 0.02, seed: int = 1) -> Iterator[LosingProxy]:
    """Run a proxy in front of the server at `target`."""
    proxy = LosingProxy(target, directory, share, seed)
    try:
        yield proxy
    finally:
        proxy.close()
