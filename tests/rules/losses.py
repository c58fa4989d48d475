"""The rules of losses: every object reports each loss once, and does not answer for the new filter."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

from tests.rules.answers import History
from tests.rules.calls import Call
from tests.rules.generations import Loss

_WAYS_OUT: Final = ("acknowledge", "clear", "delete")


def loss_violations(history: History) -> Iterator[str]:
    """Yield each violation in the reports of losses."""
    for call in history.calls:
        if call.state in ("failed", "running"):
            yield f"unexpected end: {call}"
    owners: dict[str, list[Call]] = defaultdict(list)
    for call in sorted(history.calls, key=lambda call: call.start):
        owners[call.owner].append(call)
    for calls in owners.values():
        yield from _false_alarms(history, calls)
        if history.terms.on_lost == "raise":
            yield from _silent_losses(history, calls)
    for key in history.left:
        yield f"left behind after delete(): {key}"


def _false_alarms(history: History, calls: Sequence[Call]) -> Iterator[str]:
    """Check that an object reports only losses since it last handled one."""
    alone = list(_alone(calls))
    for call in calls:
        if call.state == "lost" and (
            history.terms.on_lost == "recreate"
            or not any(
                loss.start < call.end and not _dealt(history, loss, call, alone) for loss in history.losses
            )
        ):
            yield f"told of a loss, and nothing was lost: {call}"


def _alone(calls: Sequence[Call]) -> Iterator[Call]:
    """Yield the calls that met or handled a loss while no other call was in flight, given calls by start.

    Another call may bring back what the object knew before.
    """
    ended = -math.inf
    for call, following in zip_longest(calls, calls[1:]):
        deals = call.state == "lost" or (call.verb in _WAYS_OUT and call.state == "answered")
        if deals and ended <= call.start and (following is None or following.start >= call.end):
            yield call
        ended = max(ended, call.end)


def _dealt(history: History, loss: Loss, call: Call, alone: Sequence[Call]) -> bool:
    """Return whether the object had handled a loss before a call, or knew of an acknowledged one."""
    later = (each for each in history.losses if each is not loss and each.start >= loss.end)
    sure = (each.end for each in later if each.sure)
    healed = min(sure, default=math.inf) if loss.lasts else loss.end
    marked = min((each.end for each in history.operator if each.start >= loss.end), default=math.inf)
    for each in alone:
        if each.end > call.start:
            continue
        if each.state == "lost":
            cures = each.start >= loss.end and call.start >= marked
        else:
            cures = each.start >= (healed if each.verb == "acknowledge" else loss.end)
        if cures:
            return True
    return False


def _silent_losses(history: History, calls: Sequence[Call]) -> Iterator[str]:
    """Check that an object does not answer for a new filter before it has reported the loss."""
    for loss in history.losses:
        emptied = (each.end for each in calls if each.verb in _WAYS_OUT and each.start < loss.start)
        since = max(emptied, default=-math.inf)
        used = [call.start for call in calls if call.start > since and _used(history, call, loss)]
        if not loss.sure or not used:
            continue
        forgotten = max(used) + history.terms.remembered if history.terms.kind == "rotating" else math.inf
        own = (each.start for each in calls if each.verb in _WAYS_OUT and each.end > loss.start)
        given = min(*own, _acknowledged(history, calls, loss, max(used)), math.inf)
        for call in calls:
            silent = (
                call.end < forgotten
                and history.begun(call) > loss.end
                and call.state == "answered"
                and call.verb in ("add", "contains")
                and loss.shard in (None, history.terms.shard(call.item))
            )
            if silent and given > call.end:
                yield f"silent loss after {loss}: {call}"


def _acknowledged(history: History, calls: Sequence[Call], loss: Loss, used: float) -> float:
    """Return when an object may go on with what another one has made: once it has raised a loss.

    A call without an answer may have made the filter after its end.

    :param used: when it last used the lost filter, or one before that.
    """
    told = (each.end for each in calls if each.state == "lost" and each.end > used)
    made = (
        each.start
        for each in history.calls
        if each.verb in _WAYS_OUT and (each.end > loss.start or each.state != "answered")
    )
    return max(min(told, default=math.inf), min(made, default=math.inf))


def _used(history: History, call: Call, loss: Loss) -> bool:
    """Return whether a call shows that its object had used the lost filter."""
    if (
        call.state != "answered"
        or call.end > loss.start
        or loss.shard not in (None, history.terms.shard(call.item))
    ):
        return False
    if history.terms.kind == "rotating":  # a rotating filter forgets by itself
        return bool(
            call.verb == "add"
            and call.answer
            and history.first[call.name].start > loss.end - history.terms.remembered
        )
    is_found = call.verb == "add" or bool(call.answer)  # a test that finds nothing may have found no filter
    return is_found and (call.verb == "add" or loss.shard is None)
