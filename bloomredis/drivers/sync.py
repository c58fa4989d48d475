"""Executes the steps of operations with a synchronous client."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any, Final, TypeVar

from bloomredis.drivers.connections.clients import SyncClient
from bloomredis.drivers.connections.direct import DirectClient, send
from bloomredis.protocol import cluster, forks, steps
from bloomredis.protocol.metering import of_thread

S = TypeVar("S")
T = TypeVar("T")

MOST_THREADS: Final = 32
"""Threads, for the whole process, that wait for other servers of a filter on several."""


def drive(
    client: SyncClient, operation: Generator[S, Any, T], execute: Callable[[Any, S], object] | None = None
) -> T:
    """Execute an operation's steps until it has its answer.

    :param execute: executes one, and returns its answer; None for operations whose steps are `steps.Step`.
    """
    forks.check()
    call = client.call if execute is None and type(client) is DirectClient else None
    run: Callable[[Any, Any], object] = execute or execute_step
    if (meter := of_thread.meter) is not None:
        call, run = None, meter.counting(run)
    try:
        step = next(operation)
        while True:
            try:
                if call is not None and isinstance(step, steps.Call):
                    reply: object = call(step)
                else:
                    reply = run(client, step)
            except Exception as error:
                step = operation.throw(error)
            else:
                step = operation.send(reply)
    except StopIteration as end:
        answer: T = end.value
        return answer
    finally:
        operation.close()  # so that it notices an interruption at once


def execute_step(client: Any, step: steps.Step) -> object:
    """Execute a step; return the answer to it."""
    if isinstance(step, steps.Call):
        return _make(_at(client, step.server) if step.server else client, step)
    if isinstance(step, steps.Many):
        return _make_all(client, step.calls)
    return _here(step)


def _make(client: SyncClient, call: steps.Call) -> steps.Reply:
    """Make a call on the server or the cluster of a client."""
    if type(client) is DirectClient:
        return client.call(call)
    if cluster.is_cluster(type(client)):
        return drive(client, cluster.make(client, call), _act)
    return send(client, call.commands[0] if call.is_single else call.commands)


def _make_all(client: Any, calls: Sequence[steps.Call]) -> list[steps.Reply]:
    """Make calls, on several servers at once; return the answer to each, or its error."""
    groups = steps.by_server(calls)
    answers: list[steps.Reply] = [None] * len(calls)
    each: list[steps.Reply]
    outcomes = _at_once(
        [partial(_together, _at(client, to), [calls[i] for i in own]) for to, own in groups.items()]
    )
    for own, outcome in zip(groups.values(), outcomes, strict=True):
        each = [outcome] * len(own) if isinstance(outcome, Exception) else outcome
        for i, answer in zip(own, each, strict=True):
            answers[i] = answer
    return answers


def _together(client: SyncClient, calls: Sequence[steps.Call]) -> list[steps.Reply]:
    """Make calls on one server or cluster in one round trip."""
    if len(calls) == 1:
        return [_make(client, calls[0])]
    if cluster.is_cluster(type(client)):
        return drive(client, cluster.run(client, calls), _act)
    if type(client) is DirectClient:
        return client.together(calls)
    return steps.parted(calls, send(client, steps.joined(calls)))


def _at(client: Any, server: tuple[int, ...]) -> Any:
    """Return the client of a call's server."""
    for index in server:
        client = client[index]
    return client


def _here(step: steps.Here) -> object:
    if isinstance(step, steps.Sleep):
        time.sleep(step.seconds)
        return None
    if isinstance(step, steps.Compute):
        return step.function()
    batch = next(step.source, None)
    if batch and step.take:
        step.take(batch)
    return batch


def _at_once(calls: Sequence[Callable[[], T]]) -> list[T | Exception]:
    """Make the first call here and the others in threads, or here if no thread is free by then."""

    def outcome(call: Callable[[], T]) -> T | Exception:
        try:
            return call()
        except Exception as error:
            return error

    if len(calls) == 1:
        return [outcome(calls[0])]
    threads = _pool.threads()
    others = [threads.submit(outcome, call) for call in calls[1:]]
    try:
        outcomes = [outcome(calls[0])]
        for call, future in zip(calls[1:], others, strict=True):
            outcomes.append(outcome(call) if future.cancel() else future.result())
    finally:  # interrupted or not, nothing goes on unnoticed
        wait([future for future in others if not future.cancel()])
    return outcomes


class _Pool:
    """The threads of this process that wait for other servers."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin with no thread: a forked child has none of its parent's."""
        self._threads: ThreadPoolExecutor | None = None
        forks.renewed_after_fork(self)

    def threads(self) -> ThreadPoolExecutor:
        """Return the pool, which is made when it is first needed."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="bloomredis")
        return self._threads


_pool: Final = _Pool()


def _act(client: Any, act: cluster.Act) -> object:
    """Perform an act on a cluster."""
    if isinstance(act, cluster.Send):
        connect = getattr(client, "get_redis_connection", None) or client.get_valkey_connection
        if len(act.commands) == 1:
            return [send(connect(act.node), act.commands[0])]
        return send(connect(act.node), act.commands)
    if isinstance(act, cluster.SendAll):
        return _at_once([partial(_act, client, send) for send in act.sends])
    if isinstance(act, steps.Sleep):
        return _here(act)
    if isinstance(act, cluster.RefreshSlot | cluster.RefreshMap):
        _refresh(client, act)
        return None
    return cluster.look_up(client, act)


def _refresh(client: cluster.Client, act: cluster.RefreshSlot | cluster.RefreshMap) -> None:
    if isinstance(act, cluster.RefreshMap):
        client.nodes_manager.initialize()
    elif probe := cluster.probe(client, act):
        client.execute_command(*probe)
