"""Executes the steps of operations with an asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from bloomredis.drivers.connections.clients import AsyncClient
from bloomredis.drivers.connections.direct import AsyncDirectClient, send
from bloomredis.protocol import cluster, forks, steps
from bloomredis.protocol.metering import of_task

S = TypeVar("S")
T = TypeVar("T")


async def heeded(call: Awaitable[T]) -> T:
    """Await a call of a client; that it was given up is raised, whatever the client makes of that.

    Up to Python 3.11 `asyncio.wait_for`, with which redis-py sends, may return its result or raise its error
    in place of a cancellation.  And a client that is closed after its loop fails where it would disconnect.
    The answer would then be that of a call that its caller has given up.
    """
    loop = _running_loop()
    task = asyncio.current_task() if loop else None
    before = task.cancelling() if task else 0
    try:
        result = await call
    except Exception as error:
        if loop is None or _running_loop() is not loop:
            raise GeneratorExit from error
        if task and task.cancelling() > before:
            raise asyncio.CancelledError from error
        raise
    if task and task.cancelling() > before:
        raise asyncio.CancelledError
    return result


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop that runs; none, or another one, where a coroutine is closed that its loop has left."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def drive(
    client: AsyncClient,
    operation: Generator[S, Any, T],
    execute: Callable[[Any, S], Awaitable[object]] | None = None,
) -> T:
    """Execute an operation's steps until it has its answer.

    :param execute: executes one, and returns its answer; None for operations whose steps are `steps.Step`.
    """
    forks.check()
    call = client.call if execute is None and type(client) is AsyncDirectClient else None
    run: Callable[[Any, Any], Awaitable[object]] = execute or execute_step
    if (meter := of_task.get()) is not None:
        call, run = None, meter.counting_task(run)
    try:
        step = next(operation)
        while True:
            try:
                if call is not None and isinstance(step, steps.Call):
                    reply: object = await heeded(call(step))
                else:
                    reply = await heeded(run(client, step))
            except Exception as error:
                step = operation.throw(error)
            else:
                step = operation.send(reply)
    except StopIteration as end:
        answer: T = end.value
        return answer
    finally:
        operation.close()  # so that it notices an interruption or cancellation at once


async def execute_step(client: Any, step: steps.Step) -> object:
    """Execute a step; return the answer to it."""
    if isinstance(step, steps.Call):
        return await _make(_at(client, step.server) if step.server else client, step)
    if isinstance(step, steps.Many):
        return await make_all(client, step.calls)
    return await _here(step)


async def _make(client: AsyncClient, call: steps.Call) -> steps.Reply:
    """Make a call on the server or the cluster of a client."""
    if type(client) is AsyncDirectClient:
        return await client.call(call)
    if cluster.is_cluster(type(client)):
        return await drive(client, cluster.make(client, call), _act)
    return await send(client, call.commands[0] if call.is_single else call.commands)


async def make_all(client: Any, calls: Sequence[steps.Call]) -> list[steps.Reply]:
    """Make calls, on several servers at once; return the answer to each, or its error."""
    groups = steps.by_server(calls)
    answers: list[steps.Reply] = [None] * len(calls)
    each: list[steps.Reply]
    outcomes = await _at_once(
        [_together(_at(client, to), [calls[i] for i in own]) for to, own in groups.items()]
    )
    for own, outcome in zip(groups.values(), outcomes, strict=True):
        each = [outcome] * len(own) if isinstance(outcome, Exception) else outcome
        for i, answer in zip(own, each, strict=True):
            answers[i] = answer
    return answers


async def _together(client: AsyncClient, calls: Sequence[steps.Call]) -> list[steps.Reply]:
    """Make calls on one server or cluster in one round trip."""
    if len(calls) == 1:
        return [await _make(client, calls[0])]
    if cluster.is_cluster(type(client)):
        return await drive(client, cluster.run(client, calls), _act)
    if type(client) is AsyncDirectClient:
        return await client.together(calls)
    return steps.parted(calls, await send(client, steps.joined(calls)))


def _at(client: Any, server: tuple[int, ...]) -> Any:
    """Return the client of a call's server."""
    for index in server:
        client = client[index]
    return client


async def _here(step: steps.Here) -> object:
    if isinstance(step, steps.Sleep):
        await asyncio.sleep(step.seconds)
        return None
    loop = asyncio.get_running_loop()
    if isinstance(step, steps.Compute):
        return await loop.run_in_executor(None, step.function)
    batch = await anext(step.source, None)
    if batch and step.take:
        await loop.run_in_executor(None, step.take, batch)
    return batch


async def _at_once(calls: Sequence[Awaitable[T]]) -> list[T | Exception]:
    if len(calls) == 1:  # without a task
        try:
            return [await heeded(calls[0])]
        except Exception as error:
            return [error]
    answers: list[T | Exception] = []
    for answer in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(answer, BaseException) and not isinstance(answer, Exception):
            raise answer  # one of them was cancelled from outside
        answers.append(answer)
    return answers


async def _act(client: Any, act: cluster.Act) -> object:
    """Perform an act on a cluster."""
    if isinstance(act, cluster.Send):
        return await _send_to_node(act)
    if isinstance(act, cluster.SendAll):
        return await _at_once([_send_to_node(send) for send in act.sends])
    if isinstance(act, steps.Sleep):
        return await _here(act)
    if isinstance(act, cluster.RefreshSlot):
        await _refresh_slot(client, act)
        return None
    if isinstance(act, cluster.RefreshMap):
        return await client.nodes_manager.initialize()
    await client.initialize()  # reads the map, unless it was
    return cluster.look_up(client, act)


_refreshing: Final[WeakKeyDictionary[object, dict[steps.Part, asyncio.Future[object]]]] = WeakKeyDictionary()
"""Slots that clients are asking for, by a key in them."""


async def _refresh_slot(client: Any, act: cluster.RefreshSlot) -> None:
    # All tasks that use a filter are redirected at once when it has moved.  One of them asks for all, since
    # a client that is redirected often enough closes its connections, those of other tasks too.
    under_way = _refreshing.setdefault(client, {})
    if act.key not in under_way:
        probe = cluster.probe(client, act)
        if probe is None:
            return
        asking = under_way[act.key] = asyncio.ensure_future(client.execute_command(*probe))

        def forget(done: asyncio.Future[object]) -> None:
            del under_way[act.key]
            _ = done.cancelled() or done.exception()  # those who wait get it, if any do

        asking.add_done_callback(forget)
    await asyncio.shield(under_way[act.key])


async def _send_to_node(act: cluster.Send) -> list[steps.Reply]:
    node: Any = act.node  # of an asyncio client, which sends itself
    if len(act.commands) == 1:
        return [await node.execute_command(*act.commands[0], NEVER_DECODE=True)]
    queued = [_Queued(command) for command in act.commands]
    await node.execute_pipeline(queued)
    return [each.result for each in queued]


class _Queued:
    """A command, as the nodes of an asyncio cluster client want it for a pipeline."""

    def __init__(self, command: steps.Command) -> None:
        self.args = command
        self.kwargs = {"NEVER_DECODE": True}
        self.result: steps.Reply = None
