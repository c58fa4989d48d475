"""Calls as they are asked for, and as they are recorded."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

State = Literal["running", "answered", "unknown", "lost", "not held", "failed"]
"""What became of a call.  `unknown` is every end that leaves something to ask again for, `lost` a
`FilterLostError`, `not held` a `ClaimLostError`, and `failed` an error that no fault explains."""


@dataclass(slots=True)
class Call:
    """The record of a call about one item; a batch has one for each of its items.

    Times are those of the monotonic clock, which all processes of a machine share.

    :ivar owner: the filter object, one of a forked child being another one.
    :ivar earlier: the call that this one asks again for.
    :ivar since: the answer may be about any time from then on; None if it is about that of the call.
    :ivar claim: the call that was answered with the claim which this one is about.
    :ivar equal: the call about an equal item of the same batch before it.
    :ivar holder: the name of who claims.
    """

    name: str
    owner: str
    verb: str
    item: str
    start: float
    earlier: str | None = None
    claim: str | None = None
    lease: float = 0.0
    end: float = math.inf
    state: State = "running"
    answer: Any = None
    token: str | None = None
    error: str = ""
    since: float | None = None
    equal: str | None = None
    holder: str | None = None

    def __str__(self) -> str:
        came = repr(self.answer) if self.state == "answered" else self.error or self.state
        asked = f" (for {self.earlier})" if self.earlier else ""
        return f"{self.start:.4f}-{self.end:.4f} {self.name} {self.verb}({self.item}){asked}: {came}"


class Ask(NamedTuple):
    """A call that a worker wants to be made.

    :ivar earlier: the calls that this one asks again for, one an item.
    :ivar claims: those that a batch is about, with the calls that were answered with them.
    :ivar holder: the name of who claims.
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


class Outcome(NamedTuple):
    """The records of a call, and what it returned."""

    calls: list[Call]
    value: Any = None


Work = Generator[Ask, Outcome, None]
"""What a worker does: it yields the calls that it wants to be made, in a thread or in a task."""
