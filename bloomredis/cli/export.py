"""`bloomredis export`, which prints or serves gauges of filters for Prometheus."""

from __future__ import annotations

from signal import pause
from typing import Annotated

import typer

from bloomredis.cli import filters
from bloomredis.cli.options import Names, at_least, option
from bloomredis.cli.output import write
from bloomredis.cli.server import Cluster, Url, connect
from bloomredis.cli.stopping import Stop


def export(
    names: Names,
    *,
    url: Url,
    cluster: Cluster = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Serve the gauges at this address, such as 127.0.0.1:9188 or 9188.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        float, option(at_least(0), "SECONDS", "Time for which an answer is repeated (default: 30).")
    ] = 30.0,
) -> None:
    """Print the fill of filters for Prometheus, or serve it.

    It needs prometheus_client: pip install 'bloomredis[cli,prometheus]'.
    """
    address = None if listen is None else _address(listen)
    from bloomredis.contrib import prometheus

    server = connect(url, cluster=cluster)
    gauges = prometheus.Gauges([filters.opened(server, name) for name in names], every=every)
    if address is None:
        write(gauges.text())
        return
    with Stop().waiting():
        try:
            serving = gauges.serve(*address)
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"--listen {listen}") from error
        write(f"{serving}\n".encode())
        while True:
            pause()


def _address(text: str) -> tuple[str, int]:
    """Return the host (default: 127.0.0.1) and the port; port 0 stands for any free port."""
    host, colon, port = text.rpartition(":")
    if bool(host) != bool(colon) or not port.isdecimal() or int(port) > 65535:
        raise ValueError(
            f"--listen takes an address such as 127.0.0.1:9188, or a port such as 9188, not {text!r}"
        )
    return host.strip("[]") or "127.0.0.1", int(port)
