"""Looks at the record of a sharded filter that come late: what their objects answer meanwhile may be old."""

from __future__ import annotations

from collections.abc import Iterable

from tests.history.calls import Call as Record
from tests.simulation.many.watch import SLOW, Watch
from tests.simulation.network import Exchange, verb_of
from tests.simulation.processes import Owner


def called(owner: Owner) -> str:
    """Return the name of an object, which that of another process does not share."""
    return f"{owner.name} of {owner.process.pid}"


class Looks:
    """The looks at the record that are under way, and those that found too late that it was lost."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._under_way: list[tuple[Exchange, float]] = []
        self._late: list[tuple[str, float, float, float]] = []

    def note(self, exchanges: Iterable[Exchange]) -> None:
        """Note which looks are under way, and which are over."""
        now, left = self._watch.now(), [each for each in exchanges if _known(each) is not None]
        for exchange, sent in self._under_way:
            ended = self._watch.ended.get(_known(exchange) or b"")
            if ended is not None and all(each is not exchange for each in left):
                self._late.append((called(exchange.owner), sent, now, ended))
        begun = {id(exchange): sent for exchange, sent in self._under_way}
        self._under_way = [(each, begun.get(id(each), now)) for each in left]

    def excuse(self, records: Iterable[Record]) -> None:
        """Note of each call beside a late look that it may be about what was lost."""
        for owner, begun, end, since in self._late:
            until = max(end, self._watch.later(begun, SLOW))
            for record in records:
                if record.owner == owner and record.start <= until and record.end >= begun:
                    record.since = min(since, record.start if record.since is None else record.since)


def _known(exchange: Exchange) -> bytes | None:
    """Return the generation that a look knows; None for any other message."""
    looks = (each for each in exchange.commands if verb_of(each) == "record_shard")
    return next((bytes(each[4][40:48]) for each in looks), None)
