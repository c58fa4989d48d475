"""The rules of losses: every object is told of each, once, and does not answer for what is there instead."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from tests.history.calls import Call
from tests.history.losses import Loss
from tests.history.rules import History

_WAYS_OUT: Final = ("reserve", "clear", "delete")


def loss_violations(history: History) -> Iterator[str]:
    """Yield what is wrong with what objects were told of losses."""
    for call in history.calls:
        if call.state in ("failed", "running"):
            yield f"unexpected end: {call}"
    owners: dict[str, list[Call]] = defaultdict(list)
    for call in sorted(history.calls, key=lambda call: call.start):
        owners[call.owner].append(call)
    for calls in owners.values():
        yield from _false_alarms(history, calls)
        if history.plan.on_lost == "raise":
            yield from _silent_losses(history, calls)
    for key in history.left:
        yield f"left behind after delete(): {key}"


def _false_alarms(history: History, calls: Sequence[Call]) -> Iterator[str]:
    """An object is told only of what was lost since it last dealt with a loss."""
    for call in calls:
        if call.state == "lost" and (
            history.plan.on_lost == "recreate"
            or not any(
                loss.start < call.end and not _dealt(history, loss, call, calls) for loss in history.losses
            )
        ):
            yield f"told of a loss, and nothing was lost: {call}"


def _dealt(history: History, loss: Loss, call: Call, calls: Sequence[Call]) -> bool:
    """Return whether the object had dealt with a loss before a call.

    Another call that was under way then may bring back what the object knew before.
    """
    later = (each for each in history.losses if each is not loss and each.start >= loss.end)
    sure = (each.end for each in later if each.sure)
    healed = min(sure, default=math.inf) if loss.lasts else loss.end
    for each in calls:
        if each.verb not in _WAYS_OUT or each.state != "answered" or each.end > call.start:
            continue
        under_way = (other for other in calls if other.start < each.end and other.end > each.start)
        cures = each.start >= (healed if each.verb == "reserve" else loss.end)
        if cures and all(other is each for other in under_way):
            return True
    return False


def _silent_losses(history: History, calls: Sequence[Call]) -> Iterator[str]:
    """An object that was not given the new filter must not answer for it."""
    for loss in history.losses:
        emptied = (each.end for each in calls if each.verb in _WAYS_OUT and each.start < loss.start)
        since = max(emptied, default=-math.inf)
        used = [call.start for call in calls if call.start > since and _used(history, call, loss)]
        if not loss.sure or not used:
            continue
        forgotten = max(used) + history.plan.remembered if history.plan.kind == "rotating" else math.inf
        given = min(
            (each.start for each in calls if each.verb in _WAYS_OUT and each.end > loss.start),
            default=math.inf,
        )
        for call in calls:
            silent = (
                call.end < forgotten
                and history.begun(call) > loss.settled
                and call.state == "answered"
                and call.verb in ("add", "contains")
                and loss.shard in (None, history.plan.shard(call.item))
            )
            if silent and given > call.end:
                yield f"silent loss after {loss}: {call}"


def _used(history: History, call: Call, loss: Loss) -> bool:
    """Return whether a call shows that its object knew what was lost afterwards."""
    if (
        call.state != "answered"
        or call.end > loss.start
        or loss.shard not in (None, history.plan.shard(call.item))
    ):
        return False
    if history.plan.kind == "rotating":  # it forgets by itself
        return bool(
            call.verb == "add"
            and call.answer
            and history.first[call.name].start > loss.end - history.plan.remembered
        )
    return call.verb == "add" or loss.shard is None
