"""TLS in front of a server: its own if it was built with it, else that of a proxy on loopback.

The test makes the certificate, for 127.0.0.1, by an authority that nobody else trusts.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import trustme

from tests.support.servers import Server, running


@dataclass(frozen=True)
class Certificate:
    """The files of a certificate."""

    authority: Path
    chain: Path
    key: Path

    @classmethod
    def made_in(cls, directory: Path) -> Certificate:
        """Make an authority, and a certificate for 127.0.0.1 by it."""
        made = cls(directory / "authority.pem", directory / "chain.pem", directory / "key.pem")
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1")
        authority.cert_pem.write_to_path(made.authority)
        issued.private_key_pem.write_to_path(made.key)
        for number, part in enumerate(issued.cert_chain_pems):
            part.write_to_path(made.chain, append=number > 0)
        return made


@contextmanager
def with_tls(binary: str, certificate: Certificate) -> Iterator[tuple[Server, int]]:
    """Start a server behind TLS; yield it and the port on 127.0.0.1."""
    with ExitStack() as stack:
        try:
            server, port = stack.enter_context(_native(binary, certificate))
        except RuntimeError as error:
            if not re.search("TLS support|Bad directive", str(error)):
                raise
            server = stack.enter_context(running(binary))
            port = stack.enter_context(_proxy(server.socket, certificate))
        yield server, port


@contextmanager
def _native(binary: str, certificate: Certificate) -> Iterator[tuple[Server, int]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    options = {
        "--tls-port": str(port),
        "--tls-cert-file": str(certificate.chain),
        "--tls-key-file": str(certificate.key),
        "--tls-ca-cert-file": str(certificate.authority),
        "--tls-auth-clients": "no",
        "--bind": "127.0.0.1",
        "--save": "",
    }
    with running(binary, *(word for option in options.items() for word in option)) as server:
        yield server, port


@contextmanager
def _proxy(target: str, certificate: Certificate) -> Iterator[int]:
    """Forward TLS connections to a unix socket; yield the port, which the kernel chose."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.chain, certificate.key)
    loop = asyncio.new_event_loop()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):  # the proxy ends
            from_server, to_server = await asyncio.open_unix_connection(target)
            await asyncio.gather(_copy(reader, to_server), _copy(from_server, writer))

    async def listen() -> asyncio.Server:
        return await asyncio.start_server(forward, "127.0.0.1", 0, ssl=context)

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    listener = asyncio.run_coroutine_threadsafe(listen(), loop).result(20)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(_end(listener), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _end(listener: asyncio.Server) -> None:
    listener.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
