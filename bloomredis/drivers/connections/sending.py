"""Calls and commands that a client sends by its own methods."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, overload

from bloomredis.drivers.connections.clients import AsyncClient, SyncClient
from bloomredis.protocol.steps import Call, Command, Reply, joined


@overload
def send_call(client: SyncClient, call: Call) -> Reply: ...
@overload
def send_call(client: AsyncClient, call: Call) -> Coroutine[Any, Any, Reply]: ...
def send_call(client: Any, call: Call) -> Any:
    """Let a client make a call; return its answer."""
    call.pass_to_client()
    return send_step(client, call.commands[0] if call.is_single else call.commands)


@overload
def send_calls(client: SyncClient, calls: Sequence[Call]) -> list[Reply]: ...
@overload
def send_calls(client: AsyncClient, calls: Sequence[Call]) -> Coroutine[Any, Any, list[Reply]]: ...
def send_calls(client: Any, calls: Sequence[Call]) -> Any:
    """Let a client make calls in one round trip; return the reply or error of each command."""
    for call in calls:
        call.pass_to_client()
    return _pipelined(client, joined(calls))


def send_step(transport: Any, step: Command | list[Command]) -> Any:
    """Send a command and return its reply, or send several and return the reply or error of each."""
    if not isinstance(step, list):
        if getattr(getattr(transport, "connection_pool", None), "cache", None) is not None:
            return _uncached(transport, step)
        return transport.execute_command(*step, NEVER_DECODE=True)  # replies are bits, not text
    return _pipelined(transport, step)


def _uncached(client: Any, command: Command) -> Any:
    """Send a command past the client's own cache, which may be out of date: redis-py caches no pipelines."""
    (reply,) = _pipelined(client, [command])
    if isinstance(reply, Exception):
        raise reply
    return reply


def _pipelined(client: Any, commands: Sequence[Command]) -> Any:
    """Send commands in a pipeline of the client; return the reply or error of each."""
    pipe = client.pipeline(transaction=False)
    for command in commands:
        pipe.execute_command(*command, NEVER_DECODE=True)
    return pipe.execute(raise_on_error=False)
