"""Faults of connections, from a seed: each connection has its own random numbers."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tests.history.plans import LATEST_COPY
from tests.support.proxy import Exchange, Fate, dropped, lost, passed, refused

REFUSALS: Final = (
    "READONLY You can't write against a read only replica.",
    "NOREPLICAS Not enough good replicas to write.",
    "MISCONF Errors writing to the AOF file: No space left on device",
    "NOPERM this user has no permissions to run the 'set' command",
)

_LACKS_SCRIPT: Final = b"-NOSCRIPT"
"""The reply after which no copy of the request is executed, as docs/guarantees.md says of proxies."""


@dataclass(frozen=True)
class Rates:
    """Shares of connections and requests.

    :ivar calm: connections without any fault.
    :ivar faults: requests with a fault, on the other connections.
    :ivar refused: share of possibly executed calls whose retry is refused.
    :ivar only: names of the faults, if not all.
    """

    calm: float = 0.2
    faults: float = 0.06
    refused: float = 0.5
    only: Sequence[str] = ()

    def without(self, names: Collection[str]) -> Rates:
        """Return the same rates without some faults."""
        left = [name for name in FATES if name not in names]
        return replace(self, only=left, faults=self.faults if left else 0.0)


class Dice(threading.local):
    """The random numbers of a connection; the proxy serves each connection in a thread."""

    def __init__(self, seed: str, numbers: itertools.count[int], rates: Rates) -> None:
        self.random = random.Random(f"{seed} connection {next(numbers)}")
        self.is_calm = self.random.random() < rates.calm
        self.copies: list[tuple[float, Exchange]] = []  # not yet executed, with the times of their replies


class Faults:
    """A fate that the proxy applies to every request.

    :ivar met: how often each fault happened.
    """

    def __init__(self, seed: str, rates: Rates) -> None:
        self.met: Counter[str] = Counter()
        self._rates = rates
        self._dice = Dice(seed, itertools.count(), rates)
        self._to_refuse: Counter[bytes] = Counter()  # possibly executed calls, which are refused on retry
        self._names = tuple(rates.only or FATES)
        self._away_until = self._slow_until = 0.0

    def __call__(self, exchange: Exchange) -> bool:
        """Choose a request's fate."""
        if time.monotonic() < self._away_until:
            self.met["server away"] += 1
            return dropped(exchange)
        time.sleep(max(0.0, self._slow_until - time.monotonic()))
        if not exchange.verb:
            return passed(exchange)
        dice = self._dice
        while dice.copies:
            since, copy = dice.copies.pop()
            if time.monotonic() - since < LATEST_COPY / 2:  # a connection may rest for longer
                copy.execute()  # the client has the call's reply by now, or does not wait for it
        fate = self._fate(exchange, dice)
        return passed(exchange) if fate is None else FATES[fate](self, exchange, dice)

    def leave(self, seconds: float) -> None:
        """Send no reply for that many seconds."""
        self._away_until = time.monotonic() + seconds

    def hold(self, seconds: float) -> None:
        """Hold the request back for that many seconds, then pass it on."""
        self._slow_until = time.monotonic() + seconds

    def _fate(self, exchange: Exchange, dice: Dice) -> str | None:
        call = b" ".join(exchange.arguments)
        if self._to_refuse[call] > 0:
            self._to_refuse[call] -= 1
            self.met["re-sent call refused"] += 1
            return "refused"
        if dice.is_calm or dice.random.random() >= self._rates.faults:
            return None
        name = dice.random.choice(self._names)
        self.met[name] += 1
        if name in _RESENT and dice.random.random() < self._rates.refused:
            self._to_refuse[call] = dice.random.choice((1, 1, 2))
        return name


def _late_copy(exchange: Exchange, dice: Dice) -> bool:
    exchange.hang_up()
    time.sleep(dice.random.choice((0.001, 0.005, 0.03)))  # the client retries meanwhile
    exchange.execute()
    return False


def _doubled(exchange: Exchange, dice: Dice) -> bool:
    replies = [exchange.execute(), exchange.execute()]
    told = [reply for reply in replies if not reply.startswith(_LACKS_SCRIPT)]
    exchange.answer(dice.random.choice(told or replies))
    return True


def _copied(exchange: Exchange, dice: Dice) -> bool:
    reply = exchange.execute()
    if not reply.startswith(_LACKS_SCRIPT):
        dice.copies.append((time.monotonic(), exchange))
    exchange.answer(reply)
    return True


def _slow(exchange: Exchange, dice: Dice) -> bool:
    reply = exchange.execute()
    time.sleep(dice.random.choice((0.001, 0.005, 0.02)))  # for callers with shorter timeouts
    exchange.answer(reply)
    return True


def _saying(fate: Callable[[str], Fate]) -> Callable[[Faults, Exchange, Dice], bool]:
    return lambda _, exchange, dice: fate(dice.random.choice(REFUSALS))(exchange)


FATES: Final[dict[str, Callable[[Faults, Exchange, Dice], bool]]] = {
    "lost": lambda _, exchange, __: lost(exchange),
    "dropped": lambda _, exchange, __: dropped(exchange),
    "late copy": lambda _, exchange, dice: _late_copy(exchange, dice),
    "doubled": lambda _, exchange, dice: _doubled(exchange, dice),
    "copied": lambda _, exchange, dice: _copied(exchange, dice),
    "slow": lambda _, exchange, dice: _slow(exchange, dice),
    "refused": _saying(refused),
}
_RESENT: Final = ("lost", "dropped", "late copy")
