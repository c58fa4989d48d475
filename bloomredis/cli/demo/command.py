"""`bloomredis demo`, in which workers race over one stream of clicks and process none twice."""

from __future__ import annotations

import secrets
import sys
from typing import Annotated, Any
from urllib.parse import quote

from bloomredis.cli.demo.race import Race, RaceError, Result, run, stream
from bloomredis.cli.options import option, share, whole
from bloomredis.cli.output import write
from bloomredis.cli.reports import Json, report
from bloomredis.cli.server import Cluster, OwnUrl, connect, is_of_cluster, nodes, product, redacted, scheme
from bloomredis.cli.stopping import Stop


def demo(  # long: the signature declares every option
    *,
    url: OwnUrl = None,
    cluster: Cluster = None,
    events: Annotated[int, option(whole(), "N", "Length of the stream (default: 200,000).")] = 200_000,
    workers: Annotated[int, option(whole(1, 64), "N", "Processes that race (default: 4).")] = 4,
    error_rate: Annotated[
        float, option(share, "RATE", "The filter's false-positive rate (default: 0.001).")
    ] = 0.001,
    seed: Annotated[int, option(whole(0), "N", "Seed of the stream (default: 1).")] = 1,
    as_json: Json = False,
) -> None:
    """Let processes race over a stream of clicks, and count them."""
    url = "embedded://" if url is None else url
    if scheme(url) == "memory":
        raise ValueError("memory:// is inside one process and the demo starts several; try embedded://")
    with Stop().waiting():
        client = connect(url, cluster=cluster)
        race = Race(
            url=_shared(url, client),
            name=f"bloomredis:demo:{secrets.token_hex(8)}",
            capacity=int(stream(events, seed).max()) + 1,
            error_rate=error_rate,
            events=events,
            workers=workers,
            seed=seed,
            cluster=is_of_cluster(client),
        )
        server = f"{product(next(iter(nodes(client).values())).info('server'))} at {redacted(url)}"
        if not as_json:
            write(f"Worker processes: {workers}; seed: {seed}; server: {server}\n\n".encode())
        result = _held(client, race)
        if as_json:
            report(_fields(race, result, server), as_json=True)
        else:
            write(f"{_table(race, result)}\n{_verdict(race, result)}\n".encode())
    if result.twice:
        raise RaceError(f"{result.twice} clicks were processed twice, which must never happen")


def _held(client: Any, race: Race) -> Result:
    """Run the race on a filter that is deleted afterwards."""
    seen = race.filter(client)
    try:
        seen.create()
        return run(race)
    finally:
        seen.delete()


def _shared(url: str, client: Any) -> str:
    """Return a URL of the same server for other processes."""
    if scheme(url) != "embedded":
        return url
    return f"unix://{quote(client.connection_pool.connection_kwargs['path'])}"


def _fields(race: Race, result: Result, server: str) -> dict[str, object]:
    return {
        "server": server,
        "workers": race.workers,
        "seed": race.seed,
        "error_rate": race.error_rate,
        "events": race.events,
        "distinct_clicks": race.capacity,
        "processed_once": result.once,
        "processed_twice": result.twice,
        "missed": result.missed,
        "events_per_second": round(race.events / result.seconds),
    }


def _table(race: Race, result: Result) -> str:
    from rich.console import Console
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right", style="bold")
    table.add_column(style="dim")
    table.add_row("events", f"{race.events:,}", "clicks and redeliveries, dealt out in turn")
    table.add_row("distinct clicks", f"{race.capacity:,}", "the capacity of the filter")
    table.add_row("processed once", f"{result.once:,}")
    table.add_row(
        "processed twice", f"{result.twice:,}", "must be 0", style="red" if result.twice else "green"
    )
    table.add_row("missed", f"{result.missed:,}", "false positives: mistaken for old ones")
    table.add_row("events per second", f"{race.events / result.seconds:,.0f}", f"by {race.workers} processes")
    console = Console(file=sys.stdout, highlight=False)
    with console.capture() as capture:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def _verdict(race: Race, result: Result) -> str:
    """Return in one line whether the demo went well."""
    if result.twice:
        return f"FAILED: {result.twice:,} clicks were processed twice"
    return (
        f"OK: no click was processed twice; {result.missed:,} of {race.capacity:,} taken "
        f"for old ones ({result.missed / race.capacity:.3%}; the error rate is {race.error_rate:.3%})"
    )
