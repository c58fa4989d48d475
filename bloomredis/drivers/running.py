# Made from aio_running.py by `make generate`: change that file instead.
"""The loop that runs an operation: it executes each step, and sends the answer back."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from bloomredis.drivers import sync
from bloomredis.drivers.connections import replaced
from bloomredis.drivers.connections.direct import DirectClient, SyncTransport
from bloomredis.drivers.connections.sending import send_call, send_calls
from bloomredis.protocol import cluster, forks, metering, steps
from bloomredis.protocol.gather import told_mark
from bloomredis.protocol.steps import Call

S = TypeVar("S")
T = TypeVar("T")


def drive(  # long: the halves differ in some lines
    client: SyncTransport,
    operation: Generator[S, Any, T],
    execute: Callable[[Any, S], object] | None = None,
) -> T:
    """Execute an operation's steps, and return its answer.

    With asyncio, a cancellation is raised again if the client swallows it.  Up to Python 3.11
    `asyncio.wait_for`, with which redis-py sends, may return its result or raise its error instead of a
    cancellation.  And if a coroutine is closed after its loop, the client's disconnect raises an error of its
    own.  In both cases the operation would go on although its caller has gone.

    :param execute: executes one step, and returns its answer; None for steps of the type `steps.Step`.
    """
    forks.detect_fork()
    call = client.call if execute is None and type(client) is DirectClient else None
    run: Callable[[Any, Any], object] = execute or execute_step
    if (meter := metering.of_thread.meter) is not None:
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
        return drive(client, cluster.make(client, call), sync.perform)
    return send_call(client, call)


def _make_all(client: SyncTransport, calls: Sequence[Call]) -> list[steps.Reply]:
    """Make calls in one round trip; return the answer or the error of each."""
    try:
        outcomes = _send_batch(client, calls)
    except Exception as error:
        outcomes = [error] * len(calls)
    replaced.close_free(client, outcomes)
    return outcomes


def _send_batch(client: SyncTransport, calls: Sequence[Call]) -> list[steps.Reply]:
    """Make calls in one round trip; return the answer or the error of each, or raise an error of all."""
    if len(calls) == 1:
        return [_make(client, calls[0])]
    if type(client) is DirectClient:
        return client.send_batch(calls)
    if cluster.is_cluster(type(client)):
        return drive(client, cluster.run(client, calls), sync.perform)
    return steps.parted(calls, send_calls(client, calls))


def _here(step: steps.LocalStep) -> object:
    """Execute a step that needs no server."""
    if isinstance(step, steps.Sleep):
        time.sleep(step.seconds)
        return None
    if isinstance(step, steps.Compute):
        return step.function()
    batch = next(step.source, None)
    if batch and step.take:
        step.take(batch)
    return batch
