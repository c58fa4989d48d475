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

from benchmarks.report import pages, tables
from benchmarks.report.tables import ServerReport
from benchmarks.runner import versions
from benchmarks.runner.bench import Bench, open_bench
from benchmarks.runner.counters import Counters
from benchmarks.runner.latency_probe import LatencyProbe
from benchmarks.runner.measure import Measurement, Result, Workload
from benchmarks.runner.servers import DEFAULT, replica_of
from benchmarks.workloads import (
    batch,
    bulk,
    claims,
    concurrency,
    memory,
    saturation,
    sharding,
    single,
    streams,
)
from tests.support.servers import binaries


@dataclass
class _Instruments:
    counters: Counters
    latency: LatencyProbe


def main() -> None:
    """Measure on the servers named, one after the other, and write the results."""
    begin = time.monotonic()
    found = binaries()
    options = _parser(found).parse_args()
    machine = versions.machine()
    servers = []
    gc.freeze()
    for name in options.server or DEFAULT:
        if name not in found:
            print(f"\n{name} is left out: no such server is installed (found: {', '.join(sorted(found))})")
            continue
        with open_bench(name, found[name], quick=options.quick, layout=options.layout) as bench:
            servers.append(_measured(bench, machine, re.compile(options.only, re.IGNORECASE)))
    out = options.out or (None if options.quick or options.only else pages.RESULTS)
    if out and servers:
        tables.store(out / pages.STORED.name, machine, servers)
        for path, text in pages.written(out).items():
            path.write_text(text)
        print(f"\nwritten: {out}")
    print(f"\ntotal time: {(time.monotonic() - begin) / 60:.1f} minutes")


def _parser(found: dict[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="This library beside its peers."
    )
    parser.add_argument(
        "server", nargs="*", help=f"one of {', '.join(sorted(found))}; default: {' '.join(DEFAULT)}"
    )
    parser.add_argument("--quick", action="store_true", help="few rounds, under two minutes a server")
    parser.add_argument("--only", default="", metavar="PATTERN", help="workloads whose names match")
    where = f"directory for JSON, Markdown and chart; default of a whole run: {pages.RESULTS}"
    parser.add_argument("--out", type=Path, help=where)
    parser.add_argument(
        "--layout", choices=("classic", "blocked"), help="of our filters; default: the library's"
    )
    return parser


def _workloads(*, quick: bool) -> Iterator[Workload]:
    for module in (single, claims, batch, concurrency, saturation, streams, bulk, sharding):
        yield from module.workloads(quick=quick)


def _measured(bench: Bench, machine: dict[str, object], only: re.Pattern[str]) -> ServerReport:
    missing = {peer.name: why for peer in single.PEERS if (why := peer.missing(bench))}
    layout = bench.filter("layout", capacity=1000, error_rate=0.01).info().layout
    server = ServerReport(bench.name, versions.server(bench.client), missing, layout)
    print(f"\n## {bench.name}: {versions.line(machine, server.about)}\nlayout of our filters: {layout}")
    for name, why in missing.items():
        print(f"{name} is left out: {why}")
    chosen = [workload for workload in _workloads(quick=bench.quick) if only.search(workload.name)]
    with closing(Counters(bench)) as counters, closing(LatencyProbe(bench.server.socket)) as probe:
        instruments = _Instruments(counters, probe)
        _idle(probe)
        for workload in chosen:
            _one(bench, workload, instruments, server)
        for name in memory.names(quick=bench.quick):
            if only.search(name):
                bench.clean()
                _keep(server, memory.measured(bench, name))
        _replicate(bench, [workload for workload in chosen if workload.replicated], instruments, server)
    print(f"\n{tables.printed_verdicts(server.verdicts)}", flush=True)
    return server


def _keep(server: ServerReport, result: Result) -> None:
    server.results[result.workload] = result
    print(f"\n{tables.printed(result)}", flush=True)


def _idle(probe: LatencyProbe) -> None:
    with probe:
        time.sleep(0.5)
    print(f"worst PING while nothing runs: {probe.times['worst'] * 1e3:.2f} ms")


def _one(bench: Bench, workload: Workload, instruments: _Instruments, server: ServerReport) -> None:
    bench.clean()
    with bench.extra:
        measurement = Measurement(workload, bench, instruments.counters)
        measurement.warm_up()
        measurement.time()
        measurement.measure_latency(instruments.latency)
    _keep(server, measurement.result)


def _replicate(
    bench: Bench, workloads: list[Workload], instruments: _Instruments, server: ServerReport
) -> None:
    """Repeat the replicated workloads with a replica; last, because a primary then keeps a backlog."""
    if not workloads:
        return
    with replica_of(bench.server) as replica, replica.client() as client:
        client.replicaof("127.0.0.1", bench.server.options[bench.server.options.index("--port") + 1])
        deadline = time.monotonic() + 20
        while client.info("replication")["master_link_status"] != "up":
            assert time.monotonic() < deadline, "the replica is not connected to its primary"
            time.sleep(0.01)  # polling a condition, with a deadline
        for workload in workloads:
            bench.clean()
            measurement = Measurement(workload, bench, instruments.counters)
            measurement.replicate()
            for side, figures in measurement.result.sides.items():
                server.results[workload.name].sides[side].update(figures)
            print(f"\n{tables.printed(server.results[workload.name], 'replicated')}", flush=True)


if __name__ == "__main__":
    main()
