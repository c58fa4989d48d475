"""The table of checks of a server: facts in, findings out, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from bloomredis.cli.doctor import condition, keeping, serving
from bloomredis.cli.doctor.facts import Facts
from bloomredis.cli.doctor.findings import Finding

CHECKS: Final[tuple[Callable[[Facts], Finding | None], ...]] = (
    serving.module,
    serving.role,
    serving.replicas,
    condition.presence,
    condition.parameters,
    keeping.eviction,
    keeping.memory,
    keeping.length,
    keeping.snapshots,
    keeping.log,
    condition.fullness,
    condition.ttl_seconds,
    keeping.persistence,
    serving.version,
    serving.cluster,
    serving.latency,
    serving.no_info,
    serving.no_config,
)
"""All checks, in the order of findings of equal severity; a check returns None if it does not apply."""


def checkup(facts: Facts) -> list[Finding]:
    """Return all findings, the worst first."""
    found = [finding for check in CHECKS if (finding := check(facts))]
    return sorted(found, key=lambda finding: -finding.severity)


def of_all(nodes: Sequence[Facts]) -> list[Finding]:
    """Return the findings about several nodes, the worst first; equal findings of nodes are merged."""
    where: dict[Finding, list[str]] = {}
    for facts in nodes:
        for finding in checkup(facts):
            where.setdefault(finding, []).append(facts.node or "")
    found = [replace(finding, nodes=tuple(filter(None, names))) for finding, names in where.items()]
    return sorted(found, key=lambda finding: -finding.severity)
