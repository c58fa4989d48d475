"""Holes that the simulator has to find, each with the faults that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest import mock

from tests.simulation.stage import Stage
from tests.support.holes import HOLES

OF_MANY: Final[dict[str, tuple[str, set[str]]]] = {
    "stale-drops": ("ShardedBloomFilter", {"flush_all", "evict_record", "slow"}),
    "damage-cleared-again": ("ScalingBloomFilter", {"evict_layer"}),
    "sweeps-too-far": ("ShardedBloomFilter", {"crash", "slow"}),
    "record-revived": ("RotatingBloomFilter", {"flush_all", "slow", "leap"}),
    "record-not-looked-at": ("ShardedBloomFilter", {"evict_record", "slow"}),
}
"""The holes of filters of many keys: the kind that has it, and the faults that it takes."""

OF_THE_STAGE: Final[dict[str, Callable[[Any], None]]] = {
    "forks-unseen": lambda patch: patch(Stage, "check", lambda *_: None),
}
"""Holes that only a simulated process can have: no call looks at the process that it is in."""

WITH: Final = {
    "forks-unseen": {"fork"},
    "refusal-proves": {"lost_reply", "refusal"},
    "cache-learns-for-newest": {"slow"},
    "cache-answers-for-any": {"slow"},
    "generations-ignored": {"lost_reply", "flush_all", "evict_filter"},
    "answers-not-kept": {"cancel"},
    "batches-not-kept": {"cancel"},
    "nothing-pending": {"lost_reply"},
    "lanes-not-bound": {"fork"},
    "debts-survive-fork": {"fork", "lost_reply"},
    "tokens-shared": {"lost_reply"},
    "claims-not-pending": {"lost_reply", "cancel"},
    "claims-without-time": {"late_copy"},
    "claims-without-number": {"late_copy"},
    "names-not-own": {"clone"},
    "final-forgotten": {"slow", "lost_reply"},
    "looks-not-compared": {"slow"},
    "successor-left-out": {"slow"},
    "follower-creates": {"flush_all", "evict_filter"},
    **{hole: faults for hole, (_, faults) in OF_MANY.items()},
}
"""The faults by hole; all calls are made."""


@contextmanager
def opened(names: Iterable[str]) -> Iterator[None]:
    """Open some holes for a while."""
    with ExitStack() as stack:

        def patch(thing: Any, name: str, value: Any) -> None:
            stack.enter_context(mock.patch.object(thing, name, value))

        for name in names:
            (HOLES | OF_THE_STAGE)[name](patch)
        yield
