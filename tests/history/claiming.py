"""Workers that claim items, and commit them, give them back, hold them for longer or forget them."""

from __future__ import annotations

from typing import Any, Final

from tests.history.calls import Ask, Call, Outcome, Work
from tests.history.working import Worker

LEASES: Final = (0.05, 0.3, 5.0)
"""Seconds: some leases run out while their holder is busy."""

ENDS: Final = {"commit": 5, "release": 2, "forget": 1}


class ClaimWorker(Worker):
    """Claims items that all others claim too."""

    def step(self) -> Work:
        """Claim an item or some, and deal with what is held."""
        many = self.dice.random() < 0.2
        items = self.picked(5 if many else 1)
        if items:
            yield from self._claim(Ask("claim_many" if many else "claim", items, lease=self._lease()))

    def again(self, call: Call) -> Work:
        """Claim an item again."""
        yield from self._claim(Ask("claim", (call.item,), (call,), lease=self._lease()))

    def _lease(self) -> float:
        return self.dice.choice(LEASES)

    def _claim(self, ask: Ask) -> Work:
        outcome = yield self.hurried(ask)
        yield from self.learn(outcome)
        values = outcome.value if isinstance(outcome.value, list) else [outcome.value]
        for call, claim in zip(outcome.calls, values, strict=False):
            if call.state == "answered" and call.answer == "claimed":
                yield from self._deal((call, claim))

    def _deal(self, claim: tuple[Call, Any]) -> Work:
        """Do with a claim what comes to mind; its end is asked for until it is answered."""
        item = (claim[0].item,)
        if self.dice.random() < 0.3:
            yield from self._until_answered(Ask("extend", item, claim=claim, lease=self._lease()))
        end = self.dice.choices(tuple(ENDS), tuple(ENDS.values()))[0]
        if end != "forget" and claim[1]:
            yield from self._until_answered(Ask(end, item, claim=claim))

    def _until_answered(self, ask: Ask) -> Work:
        earlier: Call | None = None
        while True:
            again = ask if earlier is None else ask._replace(earlier=(earlier,))
            (earlier,) = (yield self.hurried(again)).calls
            if earlier.state != "unknown":
                break
        if earlier.state == "lost":
            yield from self.learn(Outcome([earlier]))
