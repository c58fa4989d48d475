"""Calls that can be merged: one script call carries the items of several."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Self

from bloomredis.protocol.steps import Call, Many, Op, Reply


class Mergeable(Call):
    """A call that can be merged with other calls of its group."""

    @property
    @abstractmethod
    def group(self) -> Hashable:
        """The value that all calls of one group share; None for a call that is not merged."""

    @property
    @abstractmethod
    def names(self) -> Sequence[bytes]:
        """The items or keys of the call; a merged call contains each only once."""

    @property
    @abstractmethod
    def most(self) -> int:
        """The limit of items or keys in a merged call."""

    @abstractmethod
    def joined(self, calls: Sequence[Self]) -> Self:
        """Return one call that does the work of `calls`, a group whose first call is this one."""

    @abstractmethod
    def split(self, reply: Reply, calls: Sequence[Self]) -> Iterator[Reply]:
        """Yield the reply or error of each of the calls, given the reply to this merged call."""


def make_all(calls: Sequence[Call]) -> Op[list[Reply]]:
    """Make independent calls in one round trip, merged by group; return each reply or error."""
    runs = _runs(calls)
    if len(runs) == len(calls):
        return list((yield Many(calls)))
    outcomes: list[Reply] = [None] * len(calls)
    parts = [[calls[i] for i in run] for run in runs]
    made = [_joined(part) for part in parts]
    for run, part, call, reply in zip(runs, parts, made, (yield Many(made)), strict=True):
        for i, outcome in zip(run, _split(call, reply, part), strict=True):
            outcomes[i] = outcome
    return outcomes


def _joined(calls: Sequence[Any]) -> Any:
    """Return the call for one run; several calls of a run have the same class."""
    if len(calls) == 1:
        return calls[0]
    made = calls[0].joined(calls)
    made.stands_for = calls
    return made


def _split(call: Any, reply: Any, calls: Sequence[Any]) -> Sequence[Any]:
    """Return the outcome of each call of a run, given the outcome of the run's call."""
    if len(calls) == 1:
        return [reply]
    if not isinstance(reply, Exception):
        try:
            return list(call.split(reply, calls))
        except Exception as error:  # the reply does not fit the call
            reply = error
    return [reply] * len(calls)


def _runs(calls: Sequence[Call]) -> list[list[int]]:
    """Return the indexes of the calls, one list for each call to make."""
    runs: list[list[int]] = []
    current: dict[Hashable, tuple[list[int], set[bytes]]] = {}
    for i, call in enumerate(calls):
        if not isinstance(call, Mergeable) or (group := call.group) is None:
            runs.append([i])
            continue
        run, own = current.get(group), call.names
        if run is None or len(run[1]) + len(own) > call.most or not run[1].isdisjoint(own):
            run = current[group] = [], set()
            runs.append(run[0])
        run[0].append(i)
        run[1].update(own)
    return runs
