"""The driver for synchronous clients: it executes the steps of operations."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any, Final, TypeVar

from bloomredis.drivers.connections import replaced
from bloomredis.drivers.connections.direct import DirectClient, SyncTransport
from bloomredis.drivers.connections.sending import send_call, send_calls, send_step
from bloomredis.protocol import cluster, forks, steps
from bloomredis.protocol.gather import told_mark
from bloomredis.protocol.metering import of_thread
from bloomredis.protocol.steps import Call

S = TypeVar("S")
T = TypeVar("T")

MOST_THREADS: Final = 32
"""Threads of the whole process that wait for the replies of nodes."""


def drive(
    client: SyncTransport, operation: Generator[S, Any, T], execute: Callable[[Any, S], object] | None = None
) -> T:
    """Execute an operation's steps, and return its answer.

    :param execute: executes one step, and returns its answer; None for steps of the type `steps.Step`.
    """
    forks.detect_fork()
    call = client.call if execute is None and type(client) is DirectClient else None
    run: Callable[[Any, Any], object] = execute or execute_step
    if (meter := of_thread.meter) is not None:
        call, run = None, meter.counting(run)
    try:
        step = next(operation)
        while True:
            try:
                if call is not None and isinstance(step, Call):
                    reply: object = call(step)
                else:
                    reply = run(client, step)
            except Exception as error:
                replaced.close_free(client, (error,))
                step = operation.throw(error)
            else:
                step = operation.send(reply)
    except StopIteration as end:
        answer: T = end.value
        return answer
    except BaseException as error:
        operation.close()  # or the operation notices the interruption only when it is collected
        told = told_mark(error)
        told[0] = True  # the last step, so that nothing can come between the mark and the caller
        raise


def execute_step(client: Any, step: steps.Step) -> object:
    """Execute a step; return its answer."""
    if isinstance(step, Call):
        return _make(client, step)
    if isinstance(step, steps.Many):
        return _make_all(client, step.calls)
    if isinstance(step, steps.Ask):
        raise TypeError(f"{step} is for a driver that shares requests")
    return _here(step)


def _make(client: SyncTransport, call: Call) -> steps.Reply:
    """Make a call on a client's server or cluster."""
    if type(client) is DirectClient:
        return client.call(call)
    if cluster.is_cluster(type(client)):
        return drive(client, cluster.make(client, call), _act)
    return send_call(client, call)


def _make_all(client: SyncTransport, calls: Sequence[Call]) -> list[steps.Reply]:
    """Make calls in one round trip; return the answer or the error of each."""
    (outcome,) = _at_once([partial(_together, client, calls)])
    outcomes: list[steps.Reply] = [outcome] * len(calls) if isinstance(outcome, Exception) else outcome
    replaced.close_free(client, outcomes)
    return outcomes


def _together(client: SyncTransport, calls: Sequence[Call]) -> list[steps.Reply]:
    """Make calls in one round trip; return the answer or the error of each, or raise an error of all."""
    if len(calls) == 1:
        return [_make(client, calls[0])]
    if type(client) is DirectClient:
        return client.together(calls)
    if cluster.is_cluster(type(client)):
        return drive(client, cluster.run(client, calls), _act)
    return steps.parted(calls, send_calls(client, calls))


def _here(step: steps.LocalStep) -> object:
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
    """Make the first call in this thread and the others in the pool; or here if no thread is free by then."""

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
    finally:  # no call goes on after the return, even if this thread was interrupted
        wait([future for future in others if not future.cancel()])
    return outcomes


class _Pool:
    """The threads of this process that wait for nodes of clusters."""

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        """Begin without threads: a forked child has none of its parent's."""
        self._threads: ThreadPoolExecutor | None = None
        forks.register_after_fork(self)

    def threads(self) -> ThreadPoolExecutor:
        """Return the pool; the first call makes it."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="bloomredis")
        return self._threads


_pool: Final = _Pool()


def _act(client: Any, act: cluster.Act) -> object:
    """Perform an act on a cluster."""
    if isinstance(act, cluster.Send):
        return _send_to_node(client, act)
    if isinstance(act, cluster.SendAll):
        return _at_once([partial(_act, client, send_step) for send_step in act.sends])
    if isinstance(act, steps.Sleep):
        return _here(act)
    if isinstance(act, cluster.RefreshSlot | cluster.RefreshMap):
        _refresh(client, act)
        return None
    if isinstance(act, cluster.NodeAt):
        return cluster.node_at(client, act, type(act.by))
    return cluster.look_up(client, act)


def _send_to_node(client: Any, act: cluster.Send) -> object:
    connect = getattr(client, "get_redis_connection", None) or client.get_valkey_connection
    connection = connect(act.node)
    try:
        if len(act.commands) == 1:
            return [send_step(connection, act.commands[0])]
        return send_step(connection, act.commands)
    finally:
        if act.is_made:
            connection.close()


def _refresh(client: cluster.Client, act: cluster.RefreshSlot | cluster.RefreshMap) -> None:
    if isinstance(act, cluster.RefreshMap):
        client.nodes_manager.initialize()
    elif probe := cluster.probe(client, act):
        client.execute_command(*probe)
