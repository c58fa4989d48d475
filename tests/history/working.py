"""Workers: the calls of each, one after the other, until all have answers."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from tests.history.calls import Ask, Outcome, Work
from tests.history.plans import Plan
from tests.rules.calls import Call

PATIENCE: Final = 30.0
"""Seconds after the end of a round for retries of calls without an answer."""

HURRIED: Final = 0.3
"""Share of a task's calls that are cancelled if they take long."""

TRUSTING: Final = 0.3
"""Share of losses after which a worker makes its next call, since an operator may have acknowledged them."""

Hand = tuple[Call, str]
"""A call without an answer and its token, for another process."""


class Worker(ABC):
    """A worker of some kind.

    :param luck: the name of its random numbers, if it shall make the same calls as another worker.
    :param hands: functions that pass a token to another process, and that receive those of other processes;
        None for workers who share their filter object, and so retry by themselves.
    :param hurries: the worker is a task, and some of its calls are cancelled.
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
        self.handed: set[str] = set()  # items that this object must not retry
        self._hands = hands
        self._hurries = hurries
        self._haste = self.dice.choice((0.4, 0.03))  # chance of a retry
        self._uses_tokens = hands is not None or self.dice.random() < 0.5

    def work(self) -> Work:
        """Make calls until the round ends, then retry until every call has an answer."""
        while self.plan.goes_on():
            yield from self.step()
            yield from self.receive()
            if self.owed and self.dice.random() < self._haste:
                yield from self.ask_again()

    def settle(self) -> Work:
        """Retry until every call has an answer."""
        yield from self.receive()
        while self.owed and time.monotonic() < self.plan.end + PATIENCE:
            yield from self.ask_again()

    @abstractmethod
    def step(self) -> Work:
        """Make some calls."""

    def ask_again(self) -> Work:
        """Retry the calls without an answer, one after the other."""
        for _ in range(len(self.owed)):
            yield from self.again(self.owed.pop(0))

    def again(self, call: Call) -> Work:
        """Retry a call."""
        ask = Ask(call.verb, (call.item,), (call,), token=call.token if self.uses_tokens else None)
        yield from self.made(ask)

    @property
    def uses_tokens(self) -> bool:
        """Whether it retries with the tokens of errors; if not, the filter object remembers."""
        return self._uses_tokens

    def made(self, ask: Ask) -> Work:
        """Make a call; keep it for a retry if it has no answer, or pass its token on."""
        outcome = yield self.hurried(ask)
        yield from self.learn(outcome)

    def learn(self, outcome: Outcome) -> Work:
        """Record the outcome of a call."""
        for call in outcome.calls:
            if call.state == "unknown" and call.verb != "contains":
                self.owe(call)
        lost = next((call for call in outcome.calls if call.state == "lost"), None)
        if lost is not None:
            yield from self._go_on(lost)

    def hurried(self, ask: Ask) -> Ask:
        """Let some calls of a task be cancelled after a moment."""
        if self._hurries and self.dice.random() < HURRIED:
            return ask.but(hurry=self.dice.choice((0.0, 0.001, 0.003, 0.01)))
        return ask

    def owe(self, call: Call) -> None:
        """Keep a call for a retry, or pass it on, unless this object retries the same item.

        Of equal items all are passed on or none: without a token the object gives the answers of all.
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
        """Retry the calls that other processes have passed on."""
        for call, token in self._hands[1]() if self._hands else ():
            (answer,) = (yield Ask(call.verb, (call.item,), (call,), token=token)).calls
            if answer.state == "unknown":
                answer.token = answer.token or token
                self.owed.append(answer)
            elif answer.state == "lost":
                yield from self._go_on(answer)

    def _go_on(self, lost: Call) -> Work:
        """Continue with the current filter, or clear a damaged one, unless somebody else may have."""
        if self.dice.random() < TRUSTING:
            return
        is_damaged = "acknowledge()" not in lost.error
        verb = "clear" if is_damaged and self.dice.random() < 0.5 else "acknowledge"
        while (yield Ask(verb)).calls[0].state == "unknown":
            pass

    def picked(self, most: int) -> Sequence[str]:
        """Return up to that many items, some of them equal."""
        window = self.plan.window()
        items = (f"i{self.dice.choice(window)}" for _ in range(self.dice.randint(1, most)))
        return [item for item in items if item not in self.handed]


class ItemWorker(Worker):
    """Adds items that all other workers add too, one by one and in batches, and tests them."""

    def step(self) -> Work:
        """Make one call."""
        verb = self.dice.choices(("add", "add_many", "dedupe", "contains"), (5, 2, 1, 2))[0]
        items = self.picked(1 if verb in ("add", "contains") else self.plan.most)
        if items:
            yield from self.made(Ask(verb, items))

    def ask_again(self) -> Work:
        """Retry the calls without an answer, one by one or, if the object remembers, at once."""
        distinct = {call.item for call in self.owed}
        if self.uses_tokens or len(distinct) < len(self.owed) or self.dice.random() < 0.5:
            yield from super().ask_again()
            return
        owed, self.owed = self.owed, []
        yield from self.made(Ask("add_many", [call.item for call in owed], owed))


class CountingWorker(Worker):
    """Adds items that some other workers have too, and removes them again, each at most once.

    A counter ends at 15, so one worker in four uses an item, and children have their own items. So do tasks
    that are cancelled: a call without a token is retried only for such an item.
    """

    def __init__(self, name: str, plan: Plan, **options: object) -> None:
        super().__init__(name, plan, **options)  # type: ignore[arg-type]  # the options of its base class
        self._has_own = self._hurries or options.get("luck") is not None
        self._share = random.Random(name).randrange(4)
        self._added: set[str] = set()
        self._in: list[str] = []
        self._own = 0

    @property
    def uses_tokens(self) -> bool:
        """True: of several retries without a token, each would count."""
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
        """Record which items this worker has in the filter."""
        self._in += [call.item for call in outcome.calls if call.verb == "add" and call.state == "answered"]
        yield from super().learn(outcome)

    def owe(self, call: Call) -> None:
        with suppress(ValueError):
            self._in.remove(call.item)
        super().owe(call)
