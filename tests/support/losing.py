"""Replies that are lost after the server has executed the call: by a client, or by a proxy on loopback."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, BinaryIO

import redis

_TEXTS = frozenset(b"$=!")  # a length, then so many bytes
_LISTS = {b"*"[0]: 1, b"~"[0]: 1, b">"[0]: 1, b"%"[0]: 2}  # a count, then so many values, or pairs
_PUSH = b">"
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class LosingClient:
    """A client that executes commands and loses the replies that it is told to."""

    def __init__(self, client: redis.Redis) -> None:
        self.client: Any = client
        self.lose: list[str] = []
        self.sent: list[tuple[Any, ...]] = []

    def execute_command(self, *command: Any, **options: Any) -> Any:
        self.sent.append(command)
        fate = self.lose.pop(0) if self.lose else "answer"
        if fate == "never":
            raise redis.ConnectionError("Connection closed before sending")
        reply = self.client.execute_command(*command, **options)
        if fate == "lost":
            raise redis.ConnectionError("Connection closed by server.")
        return reply

    def pipeline(self, *, transaction: bool) -> Any:
        return self.client.pipeline(transaction=transaction)


class LosingProxy:
    """Forwards between a loopback port that the kernel chose and a server's unix socket.

    Each connection carries one request at a time, so that each is decided about by itself: a share of
    the replies is lost.  A lost reply is waited for, so the request has been executed, and then the
    connection to the client is closed, or reset, in turns.
    """

    def __init__(self, target: str, share: float, seed: int) -> None:
        self.lost = 0
        self.share = share
        self._target = target
        self._dice = random.Random(seed)
        self._live: set[tuple[socket.socket, socket.socket]] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept nothing more and end every connection."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset()

    def reset(self) -> None:
        """Reset every connection, wherever its request is: not sent, under way or answered."""
        for pair in tuple(self._live):
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RD)  # its thread wakes up, finds the end and resets

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with ExitStack() as stack, suppress(OSError, EOFError):
            stack.enter_context(client)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.connect(self._target)
            pair = (client, server)
            self._live.add(pair)
            stack.callback(self._live.discard, pair)
            requests, replies = (stack.enter_context(end.makefile("rb")) for end in pair)
            while self._forwards(client, server, requests, replies):
                pass

    def _forwards(
        self, client: socket.socket, server: socket.socket, requests: BinaryIO, replies: BinaryIO
    ) -> bool:
        server.sendall(_value(requests))
        reply = _value(replies)
        while reply.startswith(_PUSH):
            client.sendall(reply)
            reply = _value(replies)
        if self._dice.random() < self.share:
            self.lost += 1
            if self.lost % 2:
                client.shutdown(socket.SHUT_RDWR)
            return False
        client.sendall(reply)
        return True


def _value(stream: BinaryIO) -> bytes:
    """Read one value of the protocol, a request being a list of texts."""
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise EOFError
    if line[0] in _TEXTS and (length := int(line[1:])) >= 0:
        return line + stream.read(length + 2)
    if line[0] in _LISTS:
        return line + b"".join(_value(stream) for _ in range(int(line[1:]) * _LISTS[line[0]]))
    return line


@contextmanager
def losing(target: str, share: float = 0.02, seed: int = 1) -> Iterator[LosingProxy]:
    """Run a proxy in front of the server whose unix socket is `target`."""
    proxy = LosingProxy(target, share, seed)
    try:
        yield proxy
    finally:
        proxy.close()
