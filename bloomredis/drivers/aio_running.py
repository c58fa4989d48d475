"""The loop that runs an operation: it executes each step, and sends the answer back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from functools import partial
from typing import Any, TypeVar

from bloomredis.drivers import aio
from bloomredis.drivers.connections import replaced
from bloomredis.drivers.connections.aio_direct import AsyncDirectClient, AsyncTransport
from bloomredis.drivers.connections.sending import send_call, send_calls
from bloomredis.protocol import cluster, forks, metering, steps
from bloomredis.protocol.gather import told_mark
from bloomredis.protocol.steps import Call

S = TypeVar("S")
T = TypeVar("T")


async def drive(  # long: the halves differ in some lines
    client: AsyncTransport,
    operation: Generator[S, Any, T],
    execute: Callable[[Any, S], Awaitable[object]] | None = None,
) -> T:
    """Execute an operation's steps, and return its answer.

    With asyncio, a cancellation is raised again if the client swallows it.  Up to Python 3.11
    `asyncio.wait_for`, with which redis-py sends, may return its result or raise its error instead of a
    cancellation.  And if a coroutine is closed after its loop, the client's disconnect raises an error of its
    own.  In both cases the operation would go on although its caller has gone.

    :param execute: executes one step, and returns its answer; None for steps of the type `steps.Step`.
    """
    forks.detect_fork()
    call = client.call if execute is None and type(client) is AsyncDirectClient else None
    run: Callable[[Any, Any], Awaitable[object]] = execute or execute_step
    # asyncio:
    if (meter := metering.of_task.get()) is not None:
        call, run = None, meter.counting_task(run)
    loop = aio.loop_of_call()
    task = asyncio.current_task(loop) if loop else None
    cancelled = task.cancelling() if task else 0
    # sync: if (meter := metering.of_thread.meter) is not None:
    # sync:     call, run = None, meter.counting(run)
    # both.
    try:
        step = next(operation)
        while True:
            try:
                if call is not None and isinstance(step, Call):
                    reply: object = await call(step)
                else:
                    reply = await run(client, step)
            except Exception as error:
                # asyncio:
                aio.raise_if_loop_gone(loop, error)
                if task and task.cancelling() > cancelled:
                    raise asyncio.CancelledError from error
                # both.
                await replaced.close_free_async(client, (error,))
                step = operation.throw(error)
            else:
                # asyncio:
                if task and task.cancelling() > cancelled:
                    raise asyncio.CancelledError
                # both.
                step = operation.send(reply)
    except StopIteration as end:
        answer: T = end.value
        return answer
    except BaseException as error:
        operation.close()  # or the operation notices the interruption only when it is collected
        told = told_mark(error)
        told[0] = True  # the last step, so that nothing can come between the mark and the caller
        raise


def execute_step(client: Any, step: steps.Step) -> Coroutine[Any, Any, object]:
    """Execute a step; return its answer."""
    if isinstance(step, Call):
        return _make(client, step)
    if isinstance(step, steps.Many):
        return _make_all(client, step.calls)
    if isinstance(step, steps.Ask):
        raise TypeError(f"{step} is for a driver that shares requests")
    return _here(step)


def _make(client: AsyncTransport, call: Call) -> Coroutine[Any, Any, steps.Reply]:
    """Make a call on a client's server or cluster."""
    if type(client) is AsyncDirectClient:
        return client.call(call)
    if cluster.is_cluster(type(client)):
        return drive(client, cluster.make(client, call), aio.perform)
    return send_call(client, call)


async def _make_all(client: AsyncTransport, calls: Sequence[Call]) -> list[steps.Reply]:
    """Make calls in one round trip; return the answer or the error of each."""
    # asyncio:
    loop = aio.current_loop()
    # both.
    try:
        outcomes = await _send_batch(client, calls)
    except Exception as error:
        # asyncio:
        aio.raise_if_loop_gone(loop, error)
        # both.
        outcomes = [error] * len(calls)
    await replaced.close_free_async(client, outcomes)
    return outcomes


async def _send_batch(client: AsyncTransport, calls: Sequence[Call]) -> list[steps.Reply]:
    """Make calls in one round trip; return the answer or the error of each, or raise an error of all."""
    if len(calls) == 1:
        return [await _make(client, calls[0])]
    if type(client) is AsyncDirectClient:
        return await client.send_batch(calls)
    if cluster.is_cluster(type(client)):
        return await drive(client, cluster.run(client, calls), aio.perform)
    return steps.parted(calls, await send_calls(client, calls))


async def _here(step: steps.LocalStep) -> object:
    """Execute a step that needs no server."""
    if isinstance(step, steps.Sleep):
        await asyncio.sleep(step.seconds)
        return None
    if isinstance(step, steps.Compute):
        # asyncio:
        return await aio.in_thread(step.function)
        # sync: return step.function()
        # both.
    batch = await anext(step.source, None)
    if batch and step.take:
        # asyncio:
        await aio.in_thread(partial(step.take, batch))
        # sync: step.take(batch)
        # both.
    return batch
