"""What the rules know of a filter and of each call."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

OPERATOR = "operator"
"""The owner of a call of `bloomredis acknowledge`, which acknowledges a loss for every object."""

State = Literal["running", "answered", "unknown", "lost", "not held", "failed"]
"""The outcome of a call. `unknown`: every outcome that allows a retry. `lost`: a `FilterLostError`. `not
held`: a `ClaimLostError`. `failed`: an error that no fault explains.
"""


@dataclass(frozen=True)
class Terms:
    """The filter of a history.

    :ivar kind: "counting" and "rotating" filters have rules of their own.
    :ivar claims: its items are claimed, not added.
    :ivar remembered: seconds for which a rotating filter certainly finds an item.
    :ivar slices: the number of slices of a rotating filter.
    :ivar latest_copy: seconds after a call's end within which a late copy may be executed.
    :ivar shard: returns the shard of an item, or None without shards.
    """

    kind: str
    on_lost: Literal["raise", "recreate"] = "raise"
    claims: bool = False
    remembered: float = math.inf
    slices: int = 1
    latest_copy: float = 0.5
    shard: Callable[[str], int | None] = lambda _: None


@dataclass(slots=True)
class Call:
    """The record of a call about one item; a batch has one for each item.

    Times are those of the monotonic clock, which all processes of a machine share.

    :ivar owner: the filter object; a forked child's copy is another object.
    :ivar earlier: the call of which this one is a retry.
    :ivar since: the earliest time that the answer may be about; None for the time of the call itself.
    :ivar claim: the call whose answer was the claim that this one is about.
    :ivar equal: the call about an equal item earlier in the same batch.
    :ivar holder: the name of the claimer.
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
