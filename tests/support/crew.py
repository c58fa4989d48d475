"""Workers that add items whatever happens to the server, and their answers."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from bloomredis import BatchInterruptedError, ConnectionFailedError, OutcomeUnknownError, ServerRefusedError
from tests.support.inside import client_of

TRANSIENT = frozenset(("LOADING",))
"""Errors of a restarting server, which soon pass."""

DOUBTLESS = (ConnectionFailedError, OutcomeUnknownError)
"""Errors that leave nothing pending when a filter is opened: opening is repeated."""

PATIENCE = 60.0


@dataclass
class Seat:
    """A filter object that some workers share. Its client may be replaced while they work."""

    name: str
    filter: Any
    uses_tokens: bool = True  # else the object's own pending calls are used

    def switch(self, client: Any) -> None:
        """Use another client from now on."""
        self.filter = self.filter.with_client(client)

    def stream(self, slot: int) -> Iterator[str]:
        """Yield items for one worker; every second item is added by a worker of each seat too."""
        for number in itertools.count():
            yield f"{'any' if number % 2 else self.name}/{slot}/{number}"


class Crew:
    """Workers, in threads and in tasks, that retry until they have answers."""

    def __init__(self) -> None:
        self.told: list[tuple[str, bool]] = []
        self.errors: Counter[str] = Counter()
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(64)
        self._work: list[Future[None]] = []

    def threads(self, seat: Seat, workers: int) -> None:
        """Let threads add items one by one."""
        self._work += [self._pool.submit(self._one_by_one, seat, slot) for slot in range(workers)]

    def batches(self, seat: Seat, workers: int) -> None:
        """Let threads add batches of 20 items."""
        self._work += [self._pool.submit(self._in_batches, seat, slot) for slot in range(workers)]

    def tasks(self, seat: Seat, workers: int) -> None:
        """Let tasks of one event loop add items one by one."""
        self._work.append(self._pool.submit(asyncio.run, self._in_tasks(seat, workers)))

    def wait_for(self, answers: int) -> None:
        """Wait for that many more answers, or raise the error that stopped a worker."""
        enough, deadline = len(self.told) + answers, time.monotonic() + PATIENCE
        while len(self.told) < enough:
            for work in self._work:
                if work.done():
                    work.result()
            assert time.monotonic() < deadline, f"{enough - len(self.told)} of {answers} answers are missing"
            time.sleep(0.005)

    def stop(self) -> None:
        """Let each worker finish its item, or raise the error that stopped one before."""
        self._over.set()
        for work in self._work:
            work.result(PATIENCE)
        self._pool.shutdown()

    def answered(self) -> list[str]:
        """Return the items with an answer."""
        return list({item for item, _ in tuple(self.told)})

    def misled(self) -> dict[str, int]:
        """Return the items reported as new to nobody or to more than one worker."""
        news = Counter(item for item, new in self.told if new)
        return {item: news[item] for item in self.answered() if news[item] != 1}

    def _one_by_one(self, seat: Seat, slot: int) -> None:
        for item in seat.stream(slot):
            if self._over.is_set():
                return
            token = None
            while True:
                try:
                    self.told.append((item, seat.filter.add(item, token=token)))
                    break
                except Exception as error:
                    token = self._token(seat, error) or token

    async def _in_tasks(self, seat: Seat, workers: int) -> None:
        await self._open(seat)
        await asyncio.gather(*(self._one_task(seat, slot) for slot in range(workers)))
        await client_of(seat.filter).aclose()

    @staticmethod
    async def _open(seat: Seat) -> None:
        while True:
            try:
                await seat.filter.create()
            except DOUBTLESS:
                continue
            return

    async def _one_task(self, seat: Seat, slot: int) -> None:
        for item in seat.stream(slot):
            if self._over.is_set():
                return
            token = None
            while True:
                try:
                    self.told.append((item, await seat.filter.add(item, token=token)))
                    break
                except Exception as error:
                    token = self._token(seat, error) or token

    def _in_batches(self, seat: Seat, slot: int) -> None:
        items = seat.stream(slot)
        while not self._over.is_set():
            rest: Sequence[str] = list(itertools.islice(items, 20))
            while rest:
                try:
                    answers = seat.filter.add_many(rest)
                except BatchInterruptedError as error:
                    self._token(seat, error.__cause__)
                    answers = error.results
                except ServerRefusedError as error:
                    self._token(seat, error)
                    answers = []
                self.told += zip(rest, answers, strict=False)
                rest = rest[len(answers) :]

    def _token(self, seat: Seat, error: BaseException | None) -> str | None:
        """Return the token for a retry, or raise an error that no fault here explains."""
        assert error is not None
        self.errors[type(error).__name__] += 1
        if isinstance(error, OutcomeUnknownError):
            return error.token if seat.uses_tokens else None
        if isinstance(error, ServerRefusedError) and error.word in TRANSIENT:
            return None
        raise error
