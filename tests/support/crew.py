"""Workers that add items whatever happens to the server, and what they were told."""

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

PASSING = frozenset(("LOADING",))
"""Errors of a server that comes back, which pass in a moment."""

DOUBTLESS = (ConnectionFailedError, OutcomeUnknownError)
"""Errors that leave nothing in doubt while a filter is opened: it is opened again."""

PATIENCE = 60.0


@dataclass
class Seat:
    """A filter object that some workers share.  Its client may be exchanged while they work."""

    name: str
    filter: Any
    uses_tokens: bool = True  # else it relies on the object's memory of what is in doubt

    def switch(self, client: Any) -> None:
        """Go on with another client."""
        self.filter = self.filter.with_client(client)

    def stream(self, slot: int) -> Iterator[str]:
        """Yield items for one worker; those of every second one are added by a worker of each seat."""
        for number in itertools.count():
            yield f"{'any' if number % 2 else self.name}/{slot}/{number}"


class Crew:
    """Workers, in threads and in tasks, that ask again until they are answered."""

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
        """Let threads add 20 items at a time."""
        self._work += [self._pool.submit(self._in_batches, seat, slot) for slot in range(workers)]

    def tasks(self, seat: Seat, workers: int) -> None:
        """Let tasks of one event loop add items one by one."""
        self._work.append(self._pool.submit(asyncio.run, self._in_tasks(seat, workers)))

    def wait_for(self, answers: int) -> None:
        """Wait until there are so many more answers, or raise what stopped a worker."""
        enough, deadline = len(self.told) + answers, time.monotonic() + PATIENCE
        while len(self.told) < enough:
            for work in self._work:
                if work.done():
                    work.result()
            assert time.monotonic() < deadline, f"{enough - len(self.told)} of {answers} answers are missing"
            time.sleep(0.005)

    def stop(self) -> None:
        """Let each worker come to the end of its item, or raise what stopped one before."""
        self._over.set()
        for work in self._work:
            work.result(PATIENCE)
        self._pool.shutdown()

    def answered(self) -> list[str]:
        """Return the items that somebody got an answer for."""
        return list({item for item, _ in tuple(self.told)})

    def misled(self) -> dict[str, int]:
        """Return the items that nobody was told to be new, and those that more than one was."""
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
        await seat.filter._client.aclose()

    @staticmethod
    async def _open(seat: Seat) -> None:
        while True:
            try:
                await seat.filter.reserve()
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
        """Return what to ask again with, or raise an error that no fault here explains."""
        assert error is not None
        self.errors[type(error).__name__] += 1
        if isinstance(error, OutcomeUnknownError):
            return error.token if seat.uses_tokens else None
        if isinstance(error, ServerRefusedError) and error.word in PASSING:
            return None
        raise error
