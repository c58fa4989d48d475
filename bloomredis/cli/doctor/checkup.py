"""All checks of a server: facts in, findings out, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from bloomredis.cli.doctor import condition, keeping, serving
from bloomredis.cli.doctor.facts import Facts
from bloomredis.cli.doctor.findings import Finding, Findings

CHECKS: Final[tuple[Callable[[Facts], Findings], ...]] = (
    serving.lua,
    serving.rights,
    serving.module,
    serving.role,
    condition.presence,
    condition.parameters,
    keeping.eviction,
    keeping.memory,
    keeping.saving,
    condition.fullness,
    condition.ttl_seconds,
    keeping.persistence,
    serving.version,
    serving.cluster,
    serving.latency,
    serving.unchecked,
)
"""All checks, in the order of their findings of equal severity."""


def checkup(facts: Facts) -> list[Finding]:
    """Return all findings, the worst first."""
    found = [finding for check in CHECKS for finding in check(facts)]
    return sorted(found, key=lambda finding: -finding.severity)


def of_all(nodes: Sequence[Facts]) -> list[Finding]:
    """Return the findings about several nodes, the worst first; equal findings of nodes are merged."""
    where: dict[Finding, list[str]] = {}
    for facts in nodes:
        for finding in checkup(facts):
            where.setdefault(finding, []).append(facts.node or "")
    found = [
        replace(finding, nodes=tuple(filter(None, names))) if len(nodes) > 1 or names[0] else finding
        for finding, names in where.items()
    ]
    return sorted(found, key=lambda finding: -finding.severity)
