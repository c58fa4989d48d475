"""A proxy on loopback in front of a server that decides on each request separately.

Each connection carries one request at a time, so a fate concerns one call and no other.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, cached_property
from typing import Any, BinaryIO

import redis
import redis.asyncio

from bloomredis.protocol import scripts
from tests.support.retries import async_retrying, retrying
from tests.support.waiting import PATIENCE

_TEXTS = frozenset(b"$=!")  # a length, then that many bytes
_LISTS = {b"*"[0]: 1, b"~"[0]: 1, b">"[0]: 1, b"%"[0]: 2}  # a count, then that many values or pairs
_PUSH = b">"
_TESTS = {b"BF.MEXISTS": "contains", b"GETRANGE": "reading"}
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Exchange:
    """A request that has arrived, and its two connections.

    :ivar request: its bytes.
    """

    def __init__(
        self, request: bytes, client: socket.socket, server: socket.socket, replies: BinaryIO
    ) -> None:
        self.request = request
        self._client = client
        self._server = server
        self._replies = replies

    @cached_property
    def arguments(self) -> list[bytes]:
        """The command and its arguments."""
        found, at = [], self.request.index(b"\r\n") + 2
        while at < len(self.request):
            start = self.request.index(b"\r\n", at) + 2
            end = start + int(self.request[at + 1 : start - 2])
            found.append(self.request[start:end])
            at = end + 2
        return found

    @property
    def verb(self) -> str:
        """The verb of the called script, or a word for reads without a script; else empty."""
        command, *rest = self.arguments
        if command in _TESTS:
            return _TESTS[command]
        return verbs().get(rest[0], "") if command.startswith(b"EVAL") else ""

    def execute(self) -> bytes:
        """Send the request to the server and return its reply."""
        self._server.sendall(self.request)
        reply = read_value(self._replies)
        while reply.startswith(_PUSH):
            self.answer(reply)
            reply = read_value(self._replies)
        return reply

    def answer(self, reply: bytes) -> None:
        """Send a reply to the client."""
        self._client.sendall(reply)

    def hang_up(self) -> None:
        """End the client's connection cleanly; other fates reset it."""
        self._client.shutdown(socket.SHUT_RDWR)


Fate = Callable[[Exchange], bool]
"""The fate of a request; False ends its connection."""


def passed(exchange: Exchange) -> bool:
    """Execute the request and send its reply."""
    exchange.answer(exchange.execute())
    return True


def lost(exchange: Exchange) -> bool:
    """Execute the request, and end the connection instead of replying."""
    exchange.execute()
    exchange.hang_up()
    return False


def dropped(exchange: Exchange) -> bool:
    """End the connection; the request never reaches the server."""
    exchange.hang_up()
    return False


def silent(exchange: Exchange) -> bool:
    """Execute the request and send no reply; the connection stays open."""
    exchange.execute()
    return True


def refused(error: str) -> Fate:
    """Return a fate: the request is not executed, and the reply is an error."""

    def fate(exchange: Exchange) -> bool:
        exchange.answer(f"-{error}\r\n".encode())
        return True

    return fate


def belied(error: str) -> Fate:
    """Return a fate: the request is executed, and the reply is an error."""

    def fate(exchange: Exchange) -> bool:
        exchange.execute()
        return refused(error)(exchange)

    return fate


def garbled(reply: bytes) -> Fate:
    """Return a fate: the request is executed, and the reply consists of other bytes."""

    def fate(exchange: Exchange) -> bool:
        exchange.execute()
        exchange.answer(reply)
        return True

    return fate


def after(action: Callable[[], object], fate: Fate) -> Fate:
    """Return a fate that runs an action first."""

    def both(exchange: Exchange) -> bool:
        action()
        return fate(exchange)

    return both


def once_executed(action: Callable[[], object], fate: Fate) -> Fate:
    """Return a fate: an action runs after the request is executed and before the reply."""

    def both(exchange: Exchange) -> bool:
        reply = exchange.execute()
        action()
        return fate(_Executed(exchange, reply))

    return both


class _Executed(Exchange):
    """An exchange whose request has been executed."""

    def __init__(self, exchange: Exchange, reply: bytes) -> None:
        self.__dict__.update(exchange.__dict__)
        self._reply = reply

    def execute(self) -> bytes:
        return self._reply


class Held:
    """A fate: the request is executed, and its reply waits for `go`.

    :param executed: if false, the request is executed only after `go`.
    """

    def __init__(self, then: Fate = passed, *, executed: bool = True) -> None:
        self.reached = threading.Event()
        self.go = threading.Event()
        self._then = then
        self._executed = executed

    def __call__(self, exchange: Exchange) -> bool:
        """Wait before the reply, or before the request."""
        if not self._executed:
            self._wait()
            return self._then(exchange)
        reply = exchange.execute()
        self._wait()
        exchange.answer(reply)
        return True

    def wait(self) -> None:
        """Wait until the request has reached this fate."""
        assert self.reached.wait(PATIENCE), "no request came"

    def _wait(self) -> None:
        self.reached.set()
        self.go.wait(PATIENCE)


class LateCopy:
    """A fate: the connection ends at once, and the request reaches the server after `arrive()`."""

    def __init__(self) -> None:
        self._go = threading.Event()
        self._done = threading.Event()

    def __call__(self, exchange: Exchange) -> bool:
        """End the connection and hold the request."""
        exchange.hang_up()
        self._go.wait(PATIENCE)
        exchange.execute()
        self._done.set()
        return False

    def arrive(self) -> None:
        """Execute the held copy, and wait for it."""
        self._go.set()
        assert self._done.wait(PATIENCE), "no copy was held back"


class Proxy:
    """Forwards between a loopback port that the kernel chose and a server's unix socket.

    :param fate: the fate of every request without a planned one.
    """

    def __init__(self, target: str, fate: Fate = passed) -> None:
        self.fate = fate
        self._target = target
        self._planned: dict[str, deque[Fate]] = {}
        self._always: dict[str, Fate] = {}
        self._live: set[tuple[socket.socket, socket.socket]] = set()
        self._clients = ExitStack()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def client(self, *, retries: int = 0, **options: Any) -> redis.Redis:
        """Return a client with that many retries, which is closed with the proxy."""
        made: redis.Redis = redis.Redis(host="127.0.0.1", port=self.port, **retrying(retries), **options)
        self._clients.callback(made.close)
        return made

    def asyncio_client(self, *, retries: int = 0, **options: Any) -> Any:
        """Return an asyncio client with that many retries; the caller closes it."""
        return redis.asyncio.Redis(host="127.0.0.1", port=self.port, **async_retrying(retries), **options)

    def plan(self, verb: str, *fates: Fate) -> None:
        """Give these fates to the next calls of a script, in order."""
        self._planned[verb] = deque(fates)

    def always(self, verb: str, fate: Fate) -> None:
        """Give this fate to all calls of a script without a planned one."""
        self._always[verb] = fate

    def calm(self) -> None:
        """Pass every request on from now on."""
        self._planned.clear()
        self._always.clear()
        self.fate = passed

    def turn_to(self, target: str) -> None:
        """Lead new connections to another server; the open ones stay where they are."""
        self._target = target

    def close(self) -> None:
        """Accept no more connections and end all."""
        self._clients.close()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset()

    def reset(self) -> None:
        """Reset every connection, whether its request is unsent, in flight or answered."""
        for pair in tuple(self._live):
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RD)  # its thread then sees the end and resets the connection

    def _fate_of(self, exchange: Exchange) -> Fate:
        if not self._planned and not self._always:
            return self.fate
        verb = exchange.verb
        if planned := self._planned.get(verb):
            with suppress(IndexError):
                return planned.popleft()
        return self._always.get(verb, self.fate)

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
            while True:
                exchange = Exchange(read_value(requests), client, server, replies)
                if not self._fate_of(exchange)(exchange):
                    return


def read_value(stream: BinaryIO) -> bytes:
    """Read one value of the protocol; a request is a list of texts."""
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise EOFError
    if line[0] in _TEXTS and (length := int(line[1:])) >= 0:
        return line + stream.read(length + 2)
    if line[0] in _LISTS:
        return line + b"".join(read_value(stream) for _ in range(int(line[1:]) * _LISTS[line[0]]))
    return line


@cache
def verbs() -> dict[bytes, str]:
    """Return the verbs of all scripts by their texts and SHAs; those of the module have the same verbs."""
    every = [*scripts.every_script()]
    return {
        name.encode(): each.verb.removeprefix("module_") for each in every for name in (each.sha, each.text)
    }


@contextmanager
def proxied(target: str, fate: Fate = passed) -> Iterator[Proxy]:
    """Run a proxy in front of the server with the unix socket `target`."""
    proxy = Proxy(target, fate)
    try:
        yield proxy
    finally:
        proxy.close()
