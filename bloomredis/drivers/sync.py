"""The driver for synchronous clients: threads, and acts on a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any, Final, TypeVar

from bloomredis.drivers.connections.sending import send_step
from bloomredis.protocol import cluster, forks, steps

S = TypeVar("S")
T = TypeVar("T")

MOST_THREADS: Final = 32
"""Threads of the whole process that wait for the replies of nodes."""


def at_once(calls: Sequence[Callable[[], T]]) -> list[T | Exception]:
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


def perform(client: Any, act: cluster.Act) -> object:
    """Perform an act on a cluster."""
    if isinstance(act, cluster.Send):
        return _send_to_node(client, act)
    if isinstance(act, cluster.SendAll):
        return at_once([partial(perform, client, send_step) for send_step in act.sends])
    if isinstance(act, steps.Sleep | cluster.RefreshSlot | cluster.RefreshMap):
        time.sleep(act.seconds) if isinstance(act, steps.Sleep) else _refresh(client, act)
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
