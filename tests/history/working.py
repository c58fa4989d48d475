"""Workers: what each asks for, one call after the other, until all it asked for is answered."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from tests.history.calls import Ask, Call, Outcome, Work
from tests.history.plans import Plan

PATIENCE: Final = 15.0
"""Seconds after the end of a round in which whatever has no answer is asked again."""

HURRIED: Final = 0.3
"""Share of the calls of tasks that are cancelled if they take long."""

Hand = tuple[Call, str]
"""A call without an answer and its token, for another process."""


class Worker(ABC):
    """A worker of some kind.

    :param luck: the name of its dice, if it shall ask for the same as another one.
    :param hands: how to hand a token to another process, and those that others handed to this one; None for
        workers who share their filter object, and so ask that again.
    :param hurries: it is a task, and some of its calls are cancelled.
    """

    def __init__(
        self,
        name: str,
        plan: Plan,
        *,
        luck: str | None = None,
        hands: tuple[Callable[[Hand], None], Callable[[], Iterator[Hand]]] | None = None,
        hurries: bool = False,
    ) -> None:
        self.name = name
        self.plan = plan
        self.dice = plan.dice(luck or name)
        self.owed: list[Call] = []
        self.handed: set[str] = set()  # items that this object must not be asked about any more
        self._hands = hands
        self._hurries = hurries
        self._haste = self.dice.choice((0.4, 0.03))  # in asking again
        self._uses_tokens = hands is not None or self.dice.random() < 0.5

    def work(self) -> Work:
        """Ask until the round is over, and then until nothing is owed."""
        while self.plan.goes_on():
            yield from self.step()
            yield from self.receive()
            if self.owed and self.dice.random() < self._haste:
                yield from self.ask_again()

    def settle(self) -> Work:
        """Ask until nothing is owed."""
        yield from self.receive()
        while self.owed and time.monotonic() < self.plan.end + PATIENCE:
            yield from self.ask_again()

    @abstractmethod
    def step(self) -> Work:
        """Make some calls."""

    def ask_again(self) -> Work:
        """Ask again for what is owed, one call after the other."""
        for _ in range(len(self.owed)):
            yield from self.again(self.owed.pop(0))

    def again(self, call: Call) -> Work:
        """Ask again for a call."""
        ask = Ask(call.verb, (call.item,), (call,), token=call.token if self.uses_tokens else None)
        yield from self.made(ask)

    @property
    def uses_tokens(self) -> bool:
        """Whether it asks with the tokens of errors; if not, the filter object remembers."""
        return self._uses_tokens

    def made(self, ask: Ask) -> Work:
        """Make a call; what has no answer is owed to this worker, or handed on with its token."""
        outcome = yield self.hurried(ask)
        yield from self.learn(outcome)

    def learn(self, outcome: Outcome) -> Work:
        """Find out what became of a call."""
        for call in outcome.calls:
            if call.state == "unknown" and call.verb != "contains":
                self._owe(call)
        lost = next((call for call in outcome.calls if call.state == "lost"), None)
        if lost is not None:
            yield from self._go_on(lost)

    def hurried(self, ask: Ask) -> Ask:
        """Let some calls of a task be cancelled after a moment."""
        if self._hurries and self.dice.random() < HURRIED:
            return ask._replace(hurry=self.dice.choice((0.0, 0.001, 0.003, 0.01)))
        return ask

    def _owe(self, call: Call) -> None:
        """Keep a call to ask again, or hand it on, unless this object asks for the same item again.

        Of equal items all are handed on or none: without a token the object gives the answers of all.
        """
        is_handed = call.item in self.handed
        may = self._hands and call.token and all(other.item != call.item for other in self.owed)
        if self._hands and call.token and is_handed:
            self._hands[0]((call, call.token))
        elif self._hands and may and self.dice.random() < 0.5 and self.plan.goes_on():
            self.handed.add(call.item)
            self._hands[0]((call, call.token or ""))
        elif not is_handed:
            self.owed.append(call)

    def receive(self) -> Work:
        """Ask for what other processes have handed to this one."""
        for call, token in self._hands[1]() if self._hands else ():
            (answer,) = (yield Ask(call.verb, (call.item,), (call,), token=token)).calls
            if answer.state == "unknown":
                answer.token = answer.token or token
                self.owed.append(answer)
            elif answer.state == "lost":
                yield from self._go_on(answer)

    def _go_on(self, lost: Call) -> Work:
        """Go on with what is there, or clear what cannot be used, unless another worker may have."""
        is_damaged = "reserve()" not in lost.error
        verb = "clear" if is_damaged and self.dice.random() < 0.5 else "reserve"
        while (yield Ask(verb)).calls[0].state == "unknown":
            pass

    def picked(self, most: int) -> Sequence[str]:
        """Return up to so many items, of which some are equal."""
        window = self.plan.window()
        items = (f"i{self.dice.choice(window)}" for _ in range(self.dice.randint(1, most)))
        return [item for item in items if item not in self.handed]


class ItemWorker(Worker):
    """Adds items that all others add too, one by one and in batches, and tests them."""

    def step(self) -> Work:
        """Make one call."""
        verb = self.dice.choices(("add", "add_many", "dedupe", "contains"), (5, 2, 1, 2))[0]
        items = self.picked(1 if verb in ("add", "contains") else 8)
        if items:
            yield from self.made(Ask(verb, items))

    def ask_again(self) -> Work:
        """Ask again for what is owed, one by one or, where the object remembers, at once."""
        distinct = {call.item for call in self.owed}
        if self.uses_tokens or len(distinct) < len(self.owed) or self.dice.random() < 0.5:
            yield from super().ask_again()
            return
        owed, self.owed = self.owed, []
        yield from self.made(Ask("add_many", [call.item for call in owed], owed))


class CountingWorker(Worker):
    """Adds items of which others have some too, and takes them out again, each at most once.

    A counter ends at 15, so one worker in four takes part in an item, and children have items of their own.
    So do tasks that are cancelled: a call without a token is asked again only about such an item.
    """

    def __init__(self, name: str, plan: Plan, **options: object) -> None:
        super().__init__(name, plan, **options)  # type: ignore[arg-type]  # they are those of its base
        self._has_own = self._hurries or options.get("luck") is not None
        self._share = random.Random(name).randrange(4)
        self._added: set[str] = set()
        self._in: list[str] = []
        self._own = 0

    @property
    def uses_tokens(self) -> bool:
        """It does: of several who ask without one, each counts."""
        return True

    def step(self) -> Work:
        """Add, test or remove."""
        if self._in and self.dice.random() < 0.45:
            item = self._in.pop(self.dice.randrange(len(self._in)))
            yield from self.made(Ask("remove", (item,)))
        elif self._in and self.dice.random() < 0.2:
            yield from self.made(Ask("contains", (self.dice.choice(self._in),)))
        else:
            items = self._new_items()
            if items:
                yield from self.made(Ask("add_many" if len(items) > 1 else "add", items))

    def _new_items(self) -> Sequence[str]:
        if self._has_own or self.dice.random() < 0.2:
            self._own += 1
            return [f"{self.name}/{self._own}"]
        mine = [f"i{n}" for n in self.plan.window() if n % 4 == self._share]
        free = [item for item in mine if item not in self._added]
        items = self.dice.sample(free, min(len(free), self.dice.choice((1, 1, 3))))
        self._added.update(items)
        return items

    def learn(self, outcome: Outcome) -> Work:
        """Remember what is in by this worker."""
        self._in += [call.item for call in outcome.calls if call.verb == "add" and call.state == "answered"]
        yield from super().learn(outcome)

    def _owe(self, call: Call) -> None:
        with suppress(ValueError):
            self._in.remove(call.item)
        super()._owe(call)
