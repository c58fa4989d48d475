"""How calls are queued on a pipeline of the caller's own, which cannot be answered with NOSCRIPT.

The first call of a script in a pipeline goes as EVAL, which teaches the server; the others behind it
name it by its SHA.  A pipeline that is executed and filled again begins anew.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Protocol

from bloomredis.protocol.receipts import Lane, Receipts
from bloomredis.protocol.scripts import Script
from bloomredis.protocol.steps import Command


class AnyPipeline(Protocol):
    """A pipeline of redis-py or valkey-py: sync or asyncio, of one server or of a cluster."""

    @property
    def execute_command(self) -> Callable[..., Any]:
        """Queue a command."""


class _Filling:
    """What is known of a pipeline while it is being filled."""

    def __init__(self) -> None:
        self.layered: object = None
        self.taught: set[str] = set()
        self.lanes: list[Lane] = []
        self.used = 0


class Pipelines:
    """The pipelines on which calls of one filter object are queued."""

    def __init__(self, receipts: Receipts) -> None:
        self._receipts = receipts
        self._fillings: weakref.WeakKeyDictionary[AnyPipeline, _Filling] = weakref.WeakKeyDictionary()

    def __reduce__(self) -> tuple[type[Pipelines], tuple[Receipts]]:
        return Pipelines, (self._receipts,)  # another process has other pipelines

    def queue(self, pipe: AnyPipeline, script: Script, command: Callable[[str, str], Command]) -> None:
        """Queue `command(verb, script)`, verb and script being EVAL and a text, or EVALSHA and a SHA."""
        filling = self._filling(pipe)
        if script.sha in filling.taught:
            pipe.execute_command(*command("EVALSHA", script.sha))
        else:
            pipe.execute_command(*command("EVAL", script.text))
            filling.taught.add(script.sha)

    def lane(self, pipe: AnyPipeline) -> Lane:
        """Return a lane for one queued call; it is used again when the pipeline is filled again."""
        filling = self._filling(pipe)
        if filling.used == len(filling.lanes):
            filling.lanes.append(self._receipts.take())
        filling.used += 1
        return filling.lanes[filling.used - 1]

    def _filling(self, pipe: AnyPipeline) -> _Filling:
        if getattr(pipe, "watching", False) and not getattr(pipe, "explicit_transaction", False):
            raise ValueError("the pipeline is watching keys and executes at once; call pipe.multi() first")
        filling = self._fillings.get(pipe)
        if filling is None:
            filling = self._fillings[pipe] = _Filling()
            weakref.finalize(pipe, self._give_back, filling.lanes)
        if (layered := _stack(pipe)) is not filling.layered:
            filling.layered, filling.used = layered, 0
            filling.taught.clear()
        return filling

    def _give_back(self, lanes: list[Lane]) -> None:
        for lane in lanes:
            self._receipts.give_back(lane)


def _stack(pipe: AnyPipeline) -> object:
    """Return the list that a pipeline queues its commands in: every client makes a new one each time."""
    strategy = getattr(pipe, "_execution_strategy", pipe)
    queue = getattr(strategy, "_command_queue", None)
    return getattr(pipe, "command_stack", None) if queue is None else queue
