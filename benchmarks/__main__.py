"""Run the benchmarks on the servers named; `python -m benchmarks --help` says how."""

from __future__ import annotations

import argparse
import gc
import re
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import batch, bench, bulk, chart, crowds, memory, report, sharding, single, streams, versions
from benchmarks.bench import Bench
from benchmarks.measure import Measuring, Result, Workload
from benchmarks.meters import Meter
from benchmarks.pinging import Pinger
from benchmarks.report import ServerReport
from benchmarks.servers import DEFAULT, replica_of
from tests.support.servers import binaries

RESULTS: Final = Path(__file__).parent / "results"


@dataclass
class _Probes:
    meter: Meter
    pinger: Pinger


def main() -> None:
    """Measure on the servers named, one after the other, and write what came out."""
    found = binaries()
    options = _parser(found).parse_args()
    machine = versions.machine()
    servers = []
    gc.freeze()
    for name in options.server or DEFAULT:
        if name not in found:
            print(f"\n{name} is left out: there is no such server here (found: {', '.join(sorted(found))})")
            continue
        with bench.on(name, found[name], quick=options.quick, layout=options.layout) as on:
            servers.append(_measured(on, machine, re.compile(options.only, re.IGNORECASE)))
    out = options.out or (None if options.quick or options.only else RESULTS)
    if out and servers:
        report.write(out, machine, servers)
        chart.write(out / "speed.png", servers)
        print(f"\nwritten: {out}")


def _parser(found: dict[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="This library beside its peers."
    )
    parser.add_argument(
        "server", nargs="*", help=f"one of {', '.join(sorted(found))}; default: {' '.join(DEFAULT)}"
    )
    parser.add_argument("--quick", action="store_true", help="few rounds, for a look: under two minutes")
    parser.add_argument("--only", default="", metavar="PATTERN", help="workloads whose names it is found in")
    parser.add_argument(
        "--out", type=Path, help=f"directory for JSON, Markdown and chart; default of a whole run: {RESULTS}"
    )
    parser.add_argument(
        "--layout", choices=("classic", "blocked"), help="of our filters; default: the library's"
    )
    return parser


def _workloads(*, quick: bool) -> Iterator[Workload]:
    for module in (single, batch, crowds, streams, bulk):
        yield from module.workloads(quick=quick)


def _measured(on: Bench, machine: dict[str, object], only: re.Pattern[str]) -> ServerReport:
    missing = {peer.name: why for peer in single.PEERS if (why := peer.missing(on))}
    layout = on.filter("layout", capacity=1000, error_rate=0.01).info().layout
    server = ServerReport(on.name, versions.server(on.client), missing, layout)
    print(f"\n## {on.name}: {versions.line(machine, server.about)}\nlayout of our filters: {layout}")
    for name, why in missing.items():
        print(f"{name} is left out: {why}")
    chosen = [workload for workload in _workloads(quick=on.quick) if only.search(workload.name)]
    with closing(Meter(on)) as meter, closing(Pinger(on.server.socket)) as pinger:
        probes = _Probes(meter, pinger)
        _idle(pinger)
        for workload in chosen:
            _one(on, workload, probes, server)
        for name in memory.names(quick=on.quick):
            if only.search(name):
                on.clean()
                _keep(server, memory.measured(on, name))
        if only.search(sharding.NAME):
            on.clean()
            _keep(server, sharding.measured(on))
        _replicate(on, [workload for workload in chosen if workload.replicated], probes, server)
    print(f"\n{report.printed_verdicts(server.verdicts)}", flush=True)
    return server


def _keep(server: ServerReport, result: Result) -> None:
    server.results[result.workload] = result
    print(f"\n{report.printed(result)}", flush=True)


def _idle(pinger: Pinger) -> None:
    with pinger:
        time.sleep(0.5)
    print(f"worst PING while nothing runs: {pinger.times['worst'] * 1e3:.2f} ms")


def _one(on: Bench, workload: Workload, probes: _Probes, server: ServerReport) -> None:
    on.clean()
    measuring = Measuring(workload, on, probes.meter)
    measuring.warm_up()
    measuring.time()
    measuring.ping(probes.pinger)
    _keep(server, measuring.result)


def _replicate(on: Bench, workloads: list[Workload], probes: _Probes, server: ServerReport) -> None:
    """Do once more, with a replica, what has to do with one; last, since a primary keeps a backlog then."""
    if not workloads:
        return
    with replica_of(on.server) as replica, replica.client() as client:
        client.replicaof("127.0.0.1", on.server.options[on.server.options.index("--port") + 1])
        deadline = time.monotonic() + 20
        while client.info("replication")["master_link_status"] != "up":
            assert time.monotonic() < deadline, "the replica does not reach its primary"
            time.sleep(0.01)  # polling a condition, with a deadline
        for workload in workloads:
            on.clean()
            measuring = Measuring(workload, on, probes.meter)
            measuring.replicate()
            for side, figures in measuring.result.sides.items():
                server.results[workload.name].sides[side].update(figures)
            print(f"\n{report.printed(server.results[workload.name], 'replicated')}", flush=True)


if __name__ == "__main__":
    main()
