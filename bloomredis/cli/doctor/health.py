"""Statements for checks that passed; each takes facts and returns a sentence, None if facts are missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from bloomredis.cli.doctor import condition, keeping, serving
from bloomredis.cli.doctor.facts import Facts
from bloomredis.cli.doctor.findings import Findings
from bloomredis.cli.doctor.state import State

Statement = Callable[[Facts], str | None]


def _scripts(facts: Facts) -> str | None:
    return None if facts.lua_error else "scripts run"


def _rights(facts: Facts) -> str | None:
    if facts.lua_error or facts.rights.unchecked:
        return None
    return "this user may run all commands of a filter" + (", on all of its keys" if facts.name else "")


def _role(facts: Facts) -> str | None:
    return None if facts.info.get("role") != "master" else "this is a primary"


def _eviction(facts: Facts) -> str | None:
    is_kept = facts.info.get("maxmemory_policy") == "noeviction"
    return "maxmemory-policy is noeviction: nothing is evicted" if is_kept else None


def _memory(facts: Facts) -> str | None:
    if "used_memory" not in facts.info:
        return None
    limit = facts.info.get("maxmemory", 0)
    room = f" of maxmemory {limit:,}" if limit else ", no maxmemory is set"
    return f"enough memory: {facts.info['used_memory']:,} bytes are used{room}"


def _saving(facts: Facts) -> str | None:
    return "the last save succeeded" if facts.info.get("rdb_last_bgsave_status") == "ok" else None


def _persistence(facts: Facts) -> str | None:
    is_on = facts.info.get("aof_enabled") and facts.config.get("appendfsync") == "always"
    return "each confirmed write is on disk (appendfsync always)" if is_on else None


def _version(facts: Facts) -> str | None:
    for product in ("valkey", "redis"):
        if release := facts.info.get(f"{product}_version"):
            return f"{product.capitalize()} {release} is recent enough"
    return None


def _latency(facts: Facts) -> str | None:
    return f"a round trip takes {facts.round_trip * 1000:.2f} ms" if facts.round_trip else None


def _filter(facts: Facts) -> str | None:
    found = facts.stored
    return f"{facts.name!r} exists: a {found.called}" if isinstance(found, State) else None


def _parameters(facts: Facts) -> str | None:
    is_both = isinstance(facts.stored, State) and facts.planned is not None
    return "its capacity and error_rate are as given" if is_both else None


def _fullness(facts: Facts) -> str | None:
    found = facts.stored
    return f"it holds {found.count:,} of {found.room:,} items" if isinstance(found, State) else None


_STATEMENTS: Final[tuple[tuple[Callable[[Facts], Findings], Statement], ...]] = (
    (condition.presence, _filter),
    (condition.parameters, _parameters),
    (condition.fullness, _fullness),
    (serving.lua, _scripts),
    (serving.rights, _rights),
    (serving.role, _role),
    (keeping.eviction, _eviction),
    (keeping.memory, _memory),
    (keeping.saving, _saving),
    (keeping.persistence, _persistence),
    (serving.version, _version),
    (serving.latency, _latency),
)
"""Each check, and the statement to print if it finds nothing; `role` may have a note."""


def well(nodes: Sequence[Facts]) -> list[str]:
    """Return the statements for all nodes, in the order of the checks; if nodes differ, one for each node."""
    return [text for check, statement in _STATEMENTS for text in _said(check, statement, nodes)]


def _said(check: Callable[[Facts], Findings], statement: Statement, nodes: Sequence[Facts]) -> list[str]:
    of_filter = check.__module__ == condition.__name__  # the first node has the filter
    texts = [
        (facts.node, None if _found(check, facts) else statement(facts))
        for facts in (nodes[:1] if of_filter else nodes)
    ]
    if len({text for _, text in texts}) > 1:
        return [f"{node}: {text}" for node, text in texts if text is not None]
    return [text for _, text in texts[:1] if text is not None]


def _found(check: Callable[[Facts], Findings], facts: Facts) -> bool:
    is_about_role = check is serving.role  # its note is about replicas
    return any(finding.severity.is_risk or not is_about_role for finding in check(facts))
