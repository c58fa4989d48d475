"""The driver for asyncio clients: it executes the steps of operations."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from bloomredis.drivers.connections import replaced
from bloomredis.drivers.connections.direct import AsyncDirectClient, AsyncTransport
from bloomredis.drivers.connections.sending import send_call, send_calls
from bloomredis.errors import BloomError
from bloomredis.protocol import cluster, forks, steps
from bloomredis.protocol.gather import told_mark
from bloomredis.protocol.metering import of_task
from bloomredis.protocol.steps import Call

S = TypeVar("S")
T = TypeVar("T")


async def drive(
    client: AsyncTransport,
    operation: Generator[S, Any, T],
    execute: Callable[[Any, S], Awaitable[object]] | None = None,
) -> T:
    """Execute an operation's steps, and return its answer.

    A cancellation is raised again if the client swallows it.  Up to Python 3.11 `asyncio.wait_for`, with
    which redis-py sends, may return its result or raise its error instead of a cancellation.  And if a
    coroutine is closed after its loop, the client's disconnect raises an error of its own.  In both cases
    the operation would go on although its caller has gone.

    :param execute: executes one step, and returns its answer; None for steps of the type `steps.Step`.
    :raises RuntimeError: no loop of asyncio is running, and the coroutine is not being closed.
    """
    forks.detect_fork()
    call = client.call if execute is None and type(client) is AsyncDirectClient else None
    run: Callable[[Any, Any], Awaitable[object]] = execute or execute_step
    if (meter := of_task.get()) is not None:
        call, run = None, meter.counting_task(run)
    loop = _loop_of_call()
    task = asyncio.current_task(loop) if loop else None
    cancelled = task.cancelling() if task else 0
    try:
        step = next(operation)
        while True:
            try:
                if call is not None and isinstance(step, Call):
                    reply: object = await call(step)
                else:
                    reply = await run(client, step)
            except Exception as error:
                _raise_if_loop_gone(loop, error)
                if task and task.cancelling() > cancelled:
                    raise asyncio.CancelledError from error
                await replaced.close_free_async(client, (error,))
                step = operation.throw(error)
            else:
                if task and task.cancelling() > cancelled:
                    raise asyncio.CancelledError
                step = operation.send(reply)
    except StopIteration as end:
        answer: T = end.value
        return answer
    except BaseException as error:
        operation.close()  # or the operation notices the interruption only when it is collected
        told = told_mark(error)
        told[0] = True  # the last step, so that nothing can come between the mark and the caller
        raise


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running loop; raise `RuntimeError` if there is none, as under trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "bloomredis.asyncio needs a running event loop of asyncio, and there is none (trio is not "
            "supported): run the program with asyncio.run(), or call a filter of bloomredis in a thread"
        ) from None


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the running loop: None, or another loop, for a coroutine closed after the end of its loop."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _loop_of_call() -> asyncio.AbstractEventLoop | None:
    """Return the running loop; None for a coroutine that is closed after the end of its loop."""
    loop = _running_loop()
    return loop if loop or isinstance(sys.exception(), GeneratorExit) else running_loop()


def _raise_if_loop_gone(loop: asyncio.AbstractEventLoop | None, error: Exception) -> None:
    """Raise `GeneratorExit` if the coroutine's loop has ended; the client's error only follows from that."""
    if loop is None or _running_loop() is not loop:
        raise GeneratorExit from error


def execute_step(client: Any, step: steps.Step) -> Coroutine[Any, Any, object]:
    """Execute a step; return a coroutine for its answer."""
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
        return drive(client, cluster.make(client, call), _act)
    return send_call(client, call)


async def _make_all(client: AsyncTransport, calls: Sequence[Call]) -> list[steps.Reply]:
    """Make calls in one round trip; return the answer or the error of each."""
    (outcome,) = await _at_once([_together(client, calls)])
    outcomes: list[steps.Reply] = [outcome] * len(calls) if isinstance(outcome, Exception) else outcome
    await replaced.close_free_async(client, outcomes)
    return outcomes


async def _together(client: AsyncTransport, calls: Sequence[Call]) -> list[steps.Reply]:
    """Make calls in one round trip; return the answer or the error of each, or raise an error of all."""
    if len(calls) == 1:
        return [await _make(client, calls[0])]
    if type(client) is AsyncDirectClient:
        return await client.together(calls)
    if cluster.is_cluster(type(client)):
        return await drive(client, cluster.run(client, calls), _act)
    return steps.parted(calls, await send_calls(client, calls))


async def _here(step: steps.LocalStep) -> object:
    if isinstance(step, steps.Sleep):
        await asyncio.sleep(step.seconds)
        return None
    if isinstance(step, steps.Compute):
        return await _in_thread(step.function)
    batch = await anext(step.source, None)
    if batch and step.take:
        await _in_thread(partial(step.take, batch))
    return batch


def _in_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """Begin a computation in a thread of the loop's executor."""
    try:
        return asyncio.get_running_loop().run_in_executor(None, function)
    except RuntimeError as error:
        raise BloomError(
            "update, save, restore, copy and merge need threads, and the event loop runs nothing in threads "
            f"any more ({error})",
            advice="call them before loop.shutdown_default_executor(), or in another loop",
        ) from error


async def _at_once(calls: Sequence[Awaitable[T]]) -> list[T | Exception]:
    if len(calls) == 1:  # saves a task
        loop = _running_loop()
        try:
            return [await calls[0]]
        except Exception as error:
            _raise_if_loop_gone(loop, error)
            return [error]
    answers: list[T | Exception] = []
    for answer in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(answer, asyncio.CancelledError):  # of that task alone: the caller goes on
            answers.append(_cancelled())
        elif isinstance(answer, BaseException) and not isinstance(answer, Exception):
            raise answer
        else:
            answers.append(answer)
    return answers


def _cancelled() -> ConnectionError:
    """Return the error of a call whose reply is lost because a task of this module was cancelled."""
    return ConnectionError("the task that waited for the reply was cancelled")


async def _act(client: Any, act: cluster.Act) -> object:
    """Perform an act on a cluster."""
    if isinstance(act, cluster.Send):
        return await _send_to_node(act)
    if isinstance(act, cluster.SendAll):
        return await _at_once([_send_to_node(send_step) for send_step in act.sends])
    if isinstance(act, steps.Sleep | cluster.RefreshSlot | cluster.RefreshMap):
        await (_here(act) if isinstance(act, steps.Sleep) else _refresh(client, act))
        return None
    await client.initialize()  # reads the slot map if that is still missing
    if isinstance(act, cluster.NodeAt):
        new: Any = partial(type(act.by), **client.get_connection_kwargs())
        return cluster.node_at(client, act, new)
    return cluster.look_up(client, act)


_refreshing: Final[WeakKeyDictionary[object, dict[steps.Part, asyncio.Future[object]]]] = WeakKeyDictionary()
"""Requests in flight for the node of a slot, by client and by a key in the slot."""


async def _refresh(client: Any, act: cluster.RefreshSlot | cluster.RefreshMap) -> None:
    if isinstance(act, cluster.RefreshMap):
        await client.nodes_manager.initialize()
        return
    # When a slot has moved, all tasks that use the filter are redirected at once.  One of them asks for all:
    # a client that is redirected often closes its connections, including those of other tasks.
    in_flight = _refreshing.setdefault(client, {})
    asking = in_flight.get(act.key)
    if asking is None or asking.get_loop().is_closed():
        probe = cluster.probe(client, act)
        if probe is None:
            return
        asking = in_flight[act.key] = asyncio.ensure_future(client.execute_command(*probe))

        def forget(done: asyncio.Future[object]) -> None:
            del in_flight[act.key]
            _ = done.cancelled() or done.exception()  # or asyncio logs an error that nobody awaits

        asking.add_done_callback(forget)
    await asyncio.wait([asking])  # a caller that is cancelled cancels nothing
    if asking.cancelled():
        raise _cancelled()
    asking.result()


async def _send_to_node(act: cluster.Send) -> list[steps.Reply]:
    node: Any = act.node  # a node of an asyncio client sends by itself
    try:
        if len(act.commands) == 1:
            return [await node.execute_command(*act.commands[0], NEVER_DECODE=True)]
        queued = [_Queued(command) for command in act.commands]
        await node.execute_pipeline(queued)
        return [each.result for each in queued]
    finally:
        if act.is_made:
            await node.disconnect()


class _Queued:
    """A command in the form that a node of an asyncio cluster client takes in a pipeline."""

    def __init__(self, command: steps.Command) -> None:
        self.args = command
        self.kwargs = {"NEVER_DECODE": True}
        self.result: steps.Reply = None
