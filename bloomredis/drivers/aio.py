"""The driver for asyncio clients: threads, and acts on a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from bloomredis.errors import BloomError
from bloomredis.protocol import cluster, steps

S = TypeVar("S")
T = TypeVar("T")


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running loop; raise `RuntimeError` if there is none, as under trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "bloomredis.asyncio needs a running event loop of asyncio, and there is none (trio is not "
            "supported): run the program with asyncio.run(), or call a filter of bloomredis in a thread"
        ) from None


def current_loop() -> asyncio.AbstractEventLoop | None:
    """Return the running loop: None, or another loop, for a coroutine closed after the end of its loop."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def loop_of_call() -> asyncio.AbstractEventLoop | None:
    """Return the running loop; None for a coroutine that is closed after the end of its loop."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError as error:
        return None if isinstance(error.__context__, GeneratorExit) else running_loop()


def raise_if_loop_gone(loop: asyncio.AbstractEventLoop | None, error: Exception) -> None:
    """Raise `GeneratorExit` if the coroutine's loop has ended; the client's error only follows from that."""
    if loop is None or current_loop() is not loop:
        raise GeneratorExit from error


def in_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """Begin a computation in a thread of the loop's executor."""
    try:
        return asyncio.get_running_loop().run_in_executor(None, function)
    except RuntimeError as error:
        raise BloomError(
            "update, save, restore, copy and merge need threads, and the event loop runs nothing in threads "
            f"any more ({error})",
            advice="call them before loop.shutdown_default_executor(), or in another loop",
        ) from error


async def at_once(calls: Sequence[Awaitable[T]]) -> list[T | Exception]:
    """Make calls at the same time; return the answer or the error of each."""
    if len(calls) == 1:  # saves a task
        loop = current_loop()
        try:
            return [await calls[0]]
        except Exception as error:
            raise_if_loop_gone(loop, error)
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


async def perform(client: Any, act: cluster.Act) -> object:
    """Perform an act on a cluster."""
    if isinstance(act, cluster.Send):
        return await _send_to_node(act)
    if isinstance(act, cluster.SendAll):
        return await at_once([_send_to_node(send_step) for send_step in act.sends])
    if isinstance(act, steps.Sleep | cluster.RefreshSlot | cluster.RefreshMap):
        await (asyncio.sleep(act.seconds) if isinstance(act, steps.Sleep) else _refresh(client, act))
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
