"""Calls as workers request them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from tests.rules.calls import Call


class Ask(NamedTuple):
    """A worker's request for a call.

    :ivar earlier: the calls of which this one is a retry, one for each item.
    :ivar claims: the claims of a batch, with the calls that returned them.
    :ivar holder: the name of the claimer.
    :ivar hurry: seconds after which a task is cancelled.
    """

    verb: str
    items: Sequence[str] = ()
    earlier: Sequence[Call | None] = ()
    token: str | None = None
    claim: tuple[Call, Any] | None = None
    lease: float = 0.0
    hurry: float | None = None
    claims: Sequence[tuple[Call, Any]] = ()
    holder: str | None = None
    renews: bool = False

    def but(self, **fields: Any) -> Ask:
        """Return the request with other values of some fields."""
        return self._replace(**fields)


class Outcome(NamedTuple):
    """The records of a call, and its return value."""

    calls: list[Call]
    value: Any = None


Work = Generator[Ask, Outcome, None]
"""A worker's work: it yields the calls to make, in a thread or in a task."""
