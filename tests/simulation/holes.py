"""Holes that the simulator must find, each with the faults that it needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest import mock

from bloomredis.operations.claims import state
from bloomredis.operations.claims.state import ClaimOptions
from bloomredis.protocol import scripts
from tests.simulation.schedule import WALL_CLOCKS
from tests.simulation.server import Scripts
from tests.simulation.stage import Stage
from tests.support.holes import HOLES

OF_MANY: Final[dict[str, tuple[str, set[str]]]] = {
    "stale-drops": ("ShardedBloomFilter", {"flush_all", "evict_record", "slow"}),
    "damage-cleared-again": ("ScalingBloomFilter", {"evict_layer"}),
    "sweeps-too-far": ("ShardedBloomFilter", {"crash", "slow"}),
    "record-revived": ("RotatingBloomFilter", {"flush_all", "slow", "leap"}),
}
"""The holes of filters of many keys: the kind that has each, and the faults that it needs."""

TOO_LONG: Final = {
    "bits-too-long": "BloomFilter",
    "layers-too-long": "ScalingBloomFilter",
    "shards-too-long": "ShardedBloomFilter",
}
"""The hole of scripts that begin to write and meet a string that is too long, in several kinds."""

KIND_OF: Final = {
    **TOO_LONG,
    "cache-learns-for-newest": "BloomFilter",
    "mark-without-identity": "BloomFilter",
    "losses-in-two-steps": "BloomFilter",
    "answers-without-owner": "ScalingBloomFilter",
    "parts-stop-in-silence": "ShardedBloomFilter",
    "nobody-is-told": "BloomFilter",
    "gone-are-told": "BloomFilter",
    "one-call-is-told": "BloomFilter",
    "module-never-grows": "module",
    "shards-without-time": "ShardedBloomFilter",
    **{hole: kind for hole, (kind, _) in OF_MANY.items()},
}
"""The kind with a hole, if not all kinds in one key have it."""


def _module_never_grows(patch: Callable[[Any, str, Any], None]) -> None:
    """Scripts do not detect from BF.INFO that the module's filter grows."""
    run = Scripts.run

    def misread(self: Scripts, sha: str, text: bytes, *rest: Any) -> Any:
        return run(self, f"{sha} misread", text.replace(b"'Expansion rate'", b"''"), *rest)

    patch(Scripts, "run", misread)


def _shards_without_time(patch: Callable[[Any, str, Any], None]) -> None:
    """Scripts give no time to what they create, so a recreated shard equals the lost one."""
    run = Scripts.run

    def timeless(self: Scripts, sha: str, text: bytes, *rest: Any) -> Any:
        return run(self, f"{sha} timeless", text.replace(b"local time = clock()", b"local time = 1"), *rest)

    patch(Scripts, "run", timeless)


_MAY_CLAIM: Final = "is_busy = not outlived and"
_OF_THE_HOLDER: Final = b"held and #held == #mine and held:sub(1, #held - 8) == mine:sub(1, #held - 8)"


def _claims_take_over(patch: Callable[[Any, str, Any], None]) -> None:
    """A claim takes over from any other one by its name, so a late copy does so from a later claim."""
    _claim_if(patch, b"(%b)" % _OF_THE_HOLDER)


def _claims_by_time(patch: Callable[[Any, str, Any], None]) -> None:
    """A claim takes over from one by its name with an earlier time, by the wall clocks of their processes."""
    new_owners = ClaimOptions.new_owners

    def timed(self: ClaimOptions, sessions: Any, count: int) -> list[bytes]:
        owners = new_owners(self, sessions, count)
        now = int(vars(state)["time"].time() * 1000).to_bytes(6)
        return [self.holder + now + each[-2:] for each in owners] if self.holder else owners

    patch(ClaimOptions, "new_owners", timed)
    patch(state.ClaimState, "is_replaceable", property(lambda _: False))
    _claim_if(patch, b"(%b and mine:sub(1, #mine - 2) >= held:sub(1, #held - 2))" % _OF_THE_HOLDER)


def _claim_if(patch: Callable[[Any, str, Any], None], condition: bytes) -> None:
    """Let the script claim items under another condition, too."""
    run, wider = Scripts.run, dict[bytes, bytes]()
    for script in scripts.every_script():
        text = scripts.assemble(script.verb, script.variant)
        if script.verb == "claim":
            changed = text.replace(_MAY_CLAIM, f"is_busy = not (outlived or {condition.decode()}) and")
            assert changed != text
            wider[script.text.encode()] = changed.encode()

    def lenient(self: Scripts, sha: str, text: bytes, *rest: Any) -> Any:
        name = f"{sha} {condition!r}" if text in wider else sha  # compiled once, whichever hole is open
        return run(self, name, wider.get(text, text), *rest)

    patch(Scripts, "run", lenient)


def _lengths_unchecked(patch: Callable[[Any, str, Any], None]) -> None:
    """Scripts don't read a filter's last bit before their first write, which shows that it is too long."""
    run = Scripts.run

    def unchecked(self: Scripts, sha: str, text: bytes, *rest: Any) -> Any:
        without = re.sub(rb"^[\w.]+\('GETBIT',.*\n", b"", text, flags=re.MULTILINE)
        return run(self, f"{sha} unchecked", without, *rest)

    patch(Scripts, "run", unchecked)


OF_THE_STAGE: Final[dict[str, Callable[[Any], None]]] = {
    "forks-unseen": lambda patch: patch(Stage, "check", lambda *_: None),
    "module-never-grows": _module_never_grows,
    "shards-without-time": _shards_without_time,
    "claims-take-over": _claims_take_over,
    "claims-by-time": _claims_by_time,
    **dict.fromkeys(TOO_LONG, _lengths_unchecked),
}
"""Holes that only the simulator opens: no call checks its process; a script has another text."""

WITH: Final = {
    **{hole: {"refused_inside"} for hole in TOO_LONG},
    "forks-unseen": {"fork"},
    "module-never-grows": set(),
    "shards-without-time": {"evict_shard"},
    "refusal-proves": {"lost_reply", "refusal"},
    "last-error-judges": {"lost_reply", "no_connection"},
    "last-attempt-of-cluster-judges": {"lost_reply", "no_connection"},
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
    "claims-not-kept": {"cancel"},
    "owners-not-used-again": {"lost_reply", "cancel"},
    "claims-take-over": {"late_copy"},
    "claims-by-time": {WALL_CLOCKS},
    "claims-without-order": set(),
    "claims-without-number": {"late_copy"},
    "names-not-own": {"clone"},
    "final-forgotten": {"slow", "lost_reply"},
    "looks-not-compared": {"slow"},
    "batches-end-in-tasks": {"cancel_task"},
    "renewals-end-in-tasks": {"cancel_task"},
    "nobody-is-told": {"evict_filter"},
    "gone-are-told": {"cancel"},
    "one-call-is-told": {"evict_filter"},
    "losses-in-two-steps": {"evict_filter", "interrupt_inside"},
    "answers-without-owner": {"interrupt_inside"},
    "parts-stop-in-silence": {"interrupt_inside"},
    "mark-without-identity": {"evict_filter"},
    **{hole: faults for hole, (_, faults) in OF_MANY.items()},
}
"""The faults for each hole; all calls are made, unless `ONLY` names some."""

ONLY: Final = {
    "cache-learns-for-newest": {"add", "add_many", "contains", "contains_many", "clear"},
    "claims-not-kept": {"add", "claim", "claim_many"},
    "claims-without-order": {"add", "claim_as"},
    "gone-are-told": {"add", "clear"},
    "losses-in-two-steps": {"add", "contains"},
    "mark-without-identity": {"add", "acknowledge"},
    "parts-stop-in-silence": {"add", "claim_many"},
    "renewals-end-in-tasks": {"add", "claim", "commit"},
}
"""The only calls for a hole that would be found rarely among others."""


@contextmanager
def opened(names: Iterable[str]) -> Iterator[None]:
    """Open some holes inside a block."""
    with ExitStack() as stack:

        def patch(thing: Any, name: str, value: Any) -> None:
            stack.enter_context(mock.patch.object(thing, name, value))

        for name in names:
            (HOLES | OF_THE_STAGE)[name](patch)
        yield
