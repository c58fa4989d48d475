"""The rules of claims: an item has one holder at a time, and is committed once in a generation.

A worker holds an item from the answer "claimed" until its last lease ends, counted from the request for
that lease, or until it begins to commit or release the item. If two workers claim by one name, the later
one holds the item. The server's clock measures leases, and runs as fast as that of the callers on the same
machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Generic, Protocol, TypeVar

from tests.rules.answers import GRAIN, History
from tests.rules.calls import Call
from tests.rules.generations import meet
from tests.rules.items import contradiction


class Claim(Protocol):
    """A call that got a claim; `holder` is the name of the claimer, None without a name."""

    holder: str | None


C = TypeVar("C", bound=Claim)


@dataclass(eq=False)
class Grant(Generic[C]):
    """The time in which a claim certainly holds an item of a generation."""

    claim: C
    generation: Hashable
    since: float
    until: float


def judge(first: Grant[C], second: Grant[C]) -> str:
    """Return the rule that two grants of an item break, or ""; a grant ends where its name takes over."""
    if first.generation != second.generation or first.since >= second.until or second.since >= first.until:
        return ""
    if first.claim.holder is None or first.claim.holder != second.claim.holder:
        return "two holders"
    earlier, later = sorted((first, second), key=lambda each: each.since)
    earlier.until = later.since
    return ""


def _grant(history: History, claim: Call, deeds: Sequence[Call], claims: Sequence[Call]) -> Grant[Call]:
    """Return the time in which a claim is certainly held.

    :param deeds: the calls about it.
    """
    extended = [each for each in deeds if each.verb == "extend" and each.state == "answered"]
    ends = [each for each in deeds if each.verb in ("commit", "release")]
    until = max(each.start + each.lease for each in (claim, *extended)) - GRAIN
    if any(_is_commit(each) for each in ends):
        until = max(until, ends[0].start)
    losses = history.standing(claim.item).losses
    cuts = [each.start for each in losses if each.start > claim.start] + [each.start for each in ends]
    if claim.holder is not None:
        same = (each for each in claims if each.holder == claim.holder and each.name != claim.name)
        cuts += [each.start for each in same if history.latest(each) > claim.start]
    (generation,) = history.generations(claim)
    return Grant(claim, generation, claim.end, min((until, *cuts)))


def _is_commit(call: Call) -> bool:
    return call.verb == "commit" and call.state == "answered"


def claim_violations(history: History) -> Iterator[str]:
    """Yield each violation of the rules of claims in a round."""
    deeds: dict[str | None, list[Call]] = defaultdict(list)
    for call in sorted(history.calls, key=lambda call: call.start):
        deeds[call.claim].append(call)
    commits = history.by_item("commit")
    for item, asked in history.by_item("claim").items():
        yield from _unequal(asked)
        claims = [call for call in asked if call.equal is None]
        won = [call for call in claims if call.answer == "claimed" and len(history.generations(call)) == 1]
        yield from _two_holders([_grant(history, call, deeds[call.name], claims) for call in won])
        committed = [each for call in won for each in deeds[call.name] if _is_commit(each)]
        yield from _two_commits(history, committed)
        yield from _busy(history, claims, deeds)
        yield from _done(history, claims, commits.get(item, []))
        yield from _at_the_end(history, item, committed, commits.get(item, []))


def _unequal(claims: Sequence[Call]) -> Iterator[str]:
    """Check that equal items of a batch have one claim, and so one answer."""
    by_name = {call.name: call for call in claims}
    for call in claims:
        first = by_name.get(call.equal or "")
        if first is not None and first.state == call.state == "answered" and first.answer != call.answer:
            yield f"unequal answers for equal items\n    {first}\n    {call}"


def _two_holders(grants: Sequence[Grant[Call]]) -> Iterator[str]:
    for second, first in combinations(grants, 2):
        if rule := judge(first, second):
            yield (
                f"{rule}\n    {second.claim} until {second.until:.4f}\n"
                f"    {first.claim} until {first.until:.4f}"
            )


def _two_commits(history: History, commits: Sequence[Call]) -> Iterator[str]:
    committed: dict[int, Call] = {}
    for commit in commits:
        (generation, *others) = history.generations(commit)
        other = committed.setdefault(generation, commit)
        if other is not commit and not others:
            yield f"two commits\n    {other}\n    {commit}"


def _busy(
    history: History, claims: Sequence[Call], deeds: Mapping[str | None, Sequence[Call]]
) -> Iterator[str]:
    """Check that "busy" comes only while another claim may exist or may yet be executed, not one's own.

    An object forgets a claim without an answer when its lease has ended; a late copy may be executed then.
    """
    for call in claims:
        if call.answer != "busy":
            continue
        own = history.first[call.name]
        others = (
            each
            for each in claims
            if history.first[each.name] is not own or each.start + each.lease <= call.start
        )
        if not any(each.start < call.end and _may_last(history, each, deeds) > call.start for each in others):
            told = sorted(
                (*claims, *(each for claim in claims for each in deeds[claim.name])),
                key=lambda each: each.start,
            )
            yield "\n    ".join([f"busy, and nobody held it: {call}", *map(str, told)])


def _may_last(history: History, claim: Call, deeds: Mapping[str | None, Sequence[Call]]) -> float:
    """Return the latest time until which a claim may last."""
    extended = [each for each in deeds[claim.name] if each.verb == "extend"]
    late = history.terms.latest_copy
    return max(each.end + late + each.lease for each in (claim, *extended)) + GRAIN


def _done(history: History, claims: Sequence[Call], commits: Sequence[Call]) -> Iterator[str]:
    for call in claims:
        if call.state != "answered":
            continue
        possible = history.possible(call)
        before = (each for each in commits if each.start < call.end)
        may_be_in = any(meet(possible, history.generations(each)) for each in before)
        if rule := contradiction("claim", call.answer, may_be_in=may_be_in):
            yield f"{rule}: {call}"


def _at_the_end(
    history: History, item: str, committed: Sequence[Call], commits: Sequence[Call]
) -> Iterator[str]:
    """Check that every answered commit is in the filter, and that a lost claim's commit changed nothing."""
    last = history.standing(item).last
    possible = history.standing(item).same(last)
    in_doubt = {each.name for each in commits if meet(possible, history.generations(each))}
    by_name = {each.name: each for each in commits}
    for commit in commits:
        denied = commit if commit.state == "not held" else None
        while denied is not None:
            in_doubt.discard(denied.name)
            denied = by_name.get(denied.earlier or "")
    present = history.present.get(item, False)
    for commit in (each for each in committed if history.is_about(each, last)):
        if rule := contradiction("commit", commit.answer, may_be_in=present):
            yield f"{rule}: {commit}"
    if not in_doubt and present:
        yield f"{item} is in the filter, and nobody committed it\n    " + "\n    ".join(map(str, commits))
