"""Calls of which one can do what several do: a script that is given the items of all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Self

from bloomredis.protocol.steps import Call, Many, Op, Reply


class Mergeable(Call):
    """A call that can be merged with others of its group."""

    __slots__ = ()

    @property
    @abstractmethod
    def group(self) -> Hashable:
        """The property that all calls of a group share; None for a call that stays alone."""

    @property
    @abstractmethod
    def names(self) -> Sequence[bytes]:
        """The things that the call is about; no merged call is about one thing twice."""

    @property
    @abstractmethod
    def most(self) -> int:
        """Limit of things that a merged call is about."""

    @abstractmethod
    def joined(self, calls: Sequence[Self]) -> Self:
        """Return one call that does what several of one group do, this one first."""

    @abstractmethod
    def split(self, reply: Reply, calls: Sequence[Self]) -> Iterator[Reply]:
        """Yield the reply to each of the calls, or its error, given the reply to this one."""


def make_all(calls: Sequence[Call]) -> Op[list[Reply]]:
    """Make independent calls in one round trip, those of a group merged; return each reply or error."""
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
    """Return the call to make for those of one run, which are of one class if they are several."""
    return calls[0].joined(calls) if len(calls) > 1 else calls[0]


def _split(call: Any, reply: Any, calls: Sequence[Any]) -> Sequence[Any]:
    """Return the outcome of each call, given that of the one which was made of them."""
    if len(calls) == 1:
        return [reply]
    if not isinstance(reply, Exception):
        try:
            return list(call.split(reply, calls))
        except Exception as error:  # another reply than such a call has
            reply = error
    return [reply] * len(calls)


def _runs(calls: Sequence[Call]) -> list[list[int]]:
    """Return the indexes of the calls that are merged, run by run."""
    runs: list[list[int]] = []
    current: dict[Hashable, tuple[list[int], set[bytes]]] = {}
    for i, call in enumerate(calls):
        if not isinstance(call, Mergeable) or (group := call.group) is None:
            runs.append([i])
            continue
        own, names = current.get(group, ([], set()))
        if not own or len(names) + len(call.names) > call.most or not names.isdisjoint(call.names):
            own, names = current[group] = [], set()
            runs.append(own)
        own.append(i)
        names.update(call.names)
    return runs
