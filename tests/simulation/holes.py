"""Holes that the simulator has to find, each with the faults that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest import mock

from tests.simulation.server import Scripts
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

KIND_OF: Final = {
    "module-never-grows": "module",
    "unreadable-is-missing": "BloomFilter",
    **{hole: kind for hole, (kind, _) in OF_MANY.items()},
}
"""The kind that has a hole, where not all in one key have."""


def _module_never_grows(patch: Callable[[Any, str, Any], None]) -> None:
    """A script does not find in BF.INFO's reply that a filter of the module grows."""
    run = Scripts.run

    def misread(self: Scripts, sha: str, text: bytes, *rest: Any) -> Any:
        return run(self, f"{sha} misread", text.replace(b"'Expansion rate'", b"''"), *rest)

    patch(Scripts, "run", misread)


OF_THE_STAGE: Final[dict[str, Callable[[Any], None]]] = {
    "forks-unseen": lambda patch: patch(Stage, "check", lambda *_: None),
    "module-never-grows": _module_never_grows,
}
"""Holes that are opened here alone: no call looks at the process that it is in; the text of a script."""

WITH: Final = {
    "forks-unseen": {"fork"},
    "module-never-grows": set(),
    "unreadable-is-missing": {"garble"},
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
