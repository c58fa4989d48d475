"""`bloomredis export`: gauges of filters for Prometheus."""

from __future__ import annotations

from signal import pause
from typing import Annotated

import typer

from bloomredis.cli import filters
from bloomredis.cli.output import write
from bloomredis.cli.server import Cluster, Url, connect
from bloomredis.cli.stopping import Stop

Names = Annotated[list[str], typer.Argument(help="The filters' keys.")]


def export(
    names: Names,
    *,
    url: Url,
    cluster: Cluster = None,
    listen: Annotated[
        str | None,
        typer.Option(help="Serve them at this address, as 127.0.0.1:9188.", show_default=False),
    ] = None,
    every: Annotated[float, typer.Option(min=0, help="Seconds for which an answer is repeated.")] = 30.0,
) -> None:
    """Print the fill of filters in the format of Prometheus, or serve it to scrapes until it is stopped.

    It needs prometheus_client: pip install 'bloomredis[cli,prometheus]'.
    """
    address = None if listen is None else _address(listen)
    from bloomredis.contrib import prometheus  # noqa: PLC0415 - an extra of its own

    server = connect(url, cluster=cluster)
    gauges = prometheus.Gauges([filters.opened(server, name) for name in names], every=every)
    if address is None:
        write(gauges.text())
        return
    with Stop().waiting():
        write(f"{gauges.serve(*address)}\n".encode())
        while True:
            pause()


def _address(text: str) -> tuple[str, int]:
    """Return the host and the port of an address; port 0 is for any that is free."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"--listen takes an address as 127.0.0.1:9188, not {text!r}")
    return host.strip("[]"), int(port)
