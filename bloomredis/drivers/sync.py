"""Executes the steps of operations with a synchronous client."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from bloomredis.protocol import cluster
from bloomredis.protocol.steps import (
    AtMostOnce,
    Concurrent,
    OnServer,
    Pipelined,
    ReadOnly,
    Step,
    commands_of,
    regrouped,
)

T = TypeVar("T")


MOST_HELPERS: Final = 32
"""Threads, for the whole process, that wait for other servers of a filter on several."""


class SyncClient(Protocol):
    """What is needed of a client."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command and return its reply."""

    def pipeline(self, *, transaction: bool) -> Any:
        """Return a pipeline, which sends several commands over one connection."""


def drive(
    client: SyncClient, operation: Generator[Any, Any, T], execute: Callable[[Any, Any], Any] | None = None
) -> T:
    """Execute an operation's commands until it has its answer."""
    execute = execute or _execute
    try:
        step = next(operation)
        while True:
            try:
                reply = execute(client, step)
            except Exception as error:
                step = operation.throw(error)
            else:
                step = operation.send(reply)
    except StopIteration as end:
        answer: T = end.value
        return answer
    finally:
        operation.close()  # it learns at once that it was interrupted or cancelled


def _execute(client: SyncClient, step: Step) -> Any:
    if isinstance(step, Concurrent):
        return _together(client, step.steps)
    if isinstance(step, OnServer):
        return _execute(client[step.server], step.step)  # type: ignore[index]  # one of several
    if cluster.is_cluster(type(client)):
        return drive(client, cluster.run(client, step), _act)
    if isinstance(step, Pipelined):
        together = [each for one in step.steps for each in commands_of(one)]
        return regrouped(step.steps, _execute(client, together))
    if isinstance(step, ReadOnly):
        step = step.command
    elif isinstance(step, AtMostOnce):
        step = step.step
    if isinstance(step, tuple):
        return client.execute_command(*step, NEVER_DECODE=True)  # bits are no text
    pipe = client.pipeline(transaction=False)
    for command in step:
        pipe.execute_command(*command, NEVER_DECODE=True)
    return pipe.execute(raise_on_error=False)


def _together(client: SyncClient, steps: Sequence[Step]) -> list[Any]:
    return _at_once([partial(_execute, client, step) for step in steps])


def _at_once(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Make the first call here and the others in threads, or here if no thread is free by then."""

    def outcome(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            return error

    helping = [_helpers().submit(outcome, call) for call in calls[1:]]
    try:
        told = [outcome(calls[0])]
        for call, future in zip(calls[1:], helping, strict=True):
            told.append(outcome(call) if future.cancel() else future.result())
    finally:  # interrupted or not, nothing goes on unnoticed
        wait([future for future in helping if not future.cancel()])
    return told


_pool: ThreadPoolExecutor | None = None


def _helpers() -> ThreadPoolExecutor:
    global _pool  # noqa: PLW0603 - one for the process, made when it is first needed
    if _pool is None:
        _pool = ThreadPoolExecutor(MOST_HELPERS, thread_name_prefix="bloomredis")
    return _pool


def _act(client: Any, act: cluster.Act) -> Any:
    """Perform an act on a cluster."""
    if isinstance(act, cluster.Send):
        connect = getattr(client, "get_redis_connection", None) or client.get_valkey_connection
        if len(act.commands) == 1:
            return [connect(act.node).execute_command(*act.commands[0], NEVER_DECODE=True)]
        return _execute(connect(act.node), act.commands)
    if isinstance(act, cluster.SendAll):
        return _at_once([partial(_act, client, send) for send in act.sends])
    if isinstance(act, cluster.Sleep):
        return time.sleep(act.seconds)
    if isinstance(act, cluster.RefreshSlot | cluster.RefreshMap):
        return _learn(client, act)
    return cluster.look_up(client, act)


def _learn(client: Any, act: cluster.RefreshSlot | cluster.RefreshMap) -> None:
    if isinstance(act, cluster.RefreshMap):
        client.nodes_manager.initialize()
    elif probe := cluster.probe(client, act):
        client.execute_command(*probe)


def _after_fork() -> None:
    global _pool  # noqa: PLW0603 - its threads are the parent's
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
