"""Workers that claim items, and commit, release, extend or forget them."""

from __future__ import annotations

from typing import Any, Final

from tests.history.calls import Ask, Outcome, Work
from tests.history.working import Worker
from tests.rules.calls import Call

LEASES: Final = (0.05, 0.3, 5.0)
"""Seconds: some leases end while their holder is busy."""

HOLDERS: Final = ("unit 0", "unit 1")
ENDS: Final = {"commit": 5, "release": 2, "forget": 1}


class ClaimWorker(Worker):
    """Claims items that all other workers claim too."""

    def step(self) -> Work:
        """Claim one or several items, and deal with the claims held."""
        many = self.dice.random() < 0.2
        items = self.picked(5 if many else 1)
        if items:
            ask = Ask("claim_many" if many else "claim", items, lease=self._lease())
            named = self.dice.choice(HOLDERS) if self.dice.random() < 0.3 else None
            yield from self._claim(ask.but(holder=named, renews=self.dice.random() < 0.3))

    def again(self, call: Call) -> Work:
        """Retry the claim of an item."""
        yield from self._claim(Ask("claim", (call.item,), (call,), lease=self._lease(), holder=call.holder))

    def _lease(self) -> float:
        return self.dice.choice(LEASES)

    def _claim(self, ask: Ask) -> Work:
        outcome = yield self.hurried(ask)
        yield from self.learn(outcome)
        values = outcome.value if isinstance(outcome.value, list) else [outcome.value]
        won = [
            (call, claim)
            for call, claim in zip(outcome.calls, values, strict=False)
            if (call.state, call.answer, call.equal) == ("answered", "claimed", None)
        ]
        if len(won) > 1 and self.dice.random() < 0.5:
            yield from self._deal_with_all(won)
            return
        for each in won:
            yield from self._deal(each)

    def _deal_with_all(self, claims: list[tuple[Call, Any]]) -> Work:
        """Commit or release claims in one call, until all have answers."""
        verb = self.dice.choice(("commit_many", "commit_many", "release_many"))
        earlier: dict[str, Call] = {}
        while claims:
            items = tuple(call.item for call, _ in claims)
            asked: list[Call | None] = [earlier.get(item) for item in items]
            outcome = yield self.hurried(Ask(verb, items, asked, claims=tuple(claims)))
            open_ = [i for i, each in enumerate(outcome.calls) if each.state == "unknown"]
            earlier = {items[i]: outcome.calls[i] for i in open_}
            claims = [claims[i] for i in open_]
            if any(each.state == "lost" for each in outcome.calls):
                yield from self.learn(Outcome([each for each in outcome.calls if each.state == "lost"]))

    def _deal(self, claim: tuple[Call, Any]) -> Work:
        """Treat a claim at random; retry its end until it has an answer."""
        item = (claim[0].item,)
        if self.dice.random() < 0.3:
            yield from self._until_answered(Ask("extend", item, claim=claim, lease=self._lease()))
        end = self.dice.choices(tuple(ENDS), tuple(ENDS.values()))[0]
        if end != "forget" and claim[1]:
            yield from self._until_answered(Ask(end, item, claim=claim))

    def _until_answered(self, ask: Ask) -> Work:
        earlier: Call | None = None
        while True:
            again = ask if earlier is None else ask.but(earlier=(earlier,))
            (earlier,) = (yield self.hurried(again)).calls
            if earlier.state != "unknown":
                break
        if earlier.state == "lost":
            yield from self.learn(Outcome([earlier]))
