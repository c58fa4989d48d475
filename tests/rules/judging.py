"""The choice of rules for a round, by its kind and workload."""

from __future__ import annotations

from collections.abc import Iterator

from tests.rules.answers import History, violations
from tests.rules.claims import claim_violations
from tests.rules.losses import loss_violations
from tests.rules.remembering import memory_violations


def all_violations(history: History) -> Iterator[str]:
    """Yield each violation in a round: first those about losses, then those about answers."""
    yield from loss_violations(history)
    if history.terms.claims:
        yield from claim_violations(history)
    elif history.terms.kind == "rotating":
        yield from memory_violations(history)
    else:
        yield from violations(history)
