"""Facts about a server, read without changing anything.

The commands are PING, INFO, CONFIG GET, and the library's own descriptions of filters.  A refused command is
recorded and raises no error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any, Final

from redis.exceptions import ResponseError

from bloomredis.cli.doctor.findings import one_line
from bloomredis.cli.doctor.state import State, state
from bloomredis.cli.kinds import Kind
from bloomredis.cli.server import is_of_cluster
from bloomredis.errors import BloomError
from bloomredis.stored.header import Header

SETTINGS: Final = (
    "save",
    "appendfsync",
    "stop-writes-on-bgsave-error",
    "min-replicas-to-write",
    "proto-max-bulk-len",
)
_PINGS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about a server; values missing in `info` and `config` are unknown."""

    info: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    unchecked: Mapping[str, str] = field(default_factory=dict)
    """Commands that were refused, with the server's errors."""

    round_trip: float = 0.0  # seconds
    name: str | None = None
    stored: State | BloomError | None = None
    """The filter with the name, or the error of reading it."""

    planned: Header | None = None
    layout: str | None = None
    node: str | None = None
    """Host and port of the node, if the client knows a whole cluster."""

    @property
    def server(self) -> str:
        """The product and its version."""
        for product in ("valkey", "redis"):
            if release := self.info.get(f"{product}_version"):
                return f"{product.capitalize()} {release}"
        return "a server"

    @property
    def has_module(self) -> bool:
        """True if the server has loaded a Bloom filter module (BF.*)."""
        return any(each.get("name") == "bf" for each in self.info.get("modules", ()))


def gather_all(
    client: Any, name: str | None, planned: Header | None, layout: str | None = None
) -> list[Facts]:
    """Return the facts about each server that has a part of the filter, the one with its key first.

    Without a name, and for a sharded filter, these are all primaries of a cluster.

    :raises redis.ConnectionError: there is no server, or it refuses the user or the password.
    """
    first = gather(client, name, planned, layout)
    is_spread = isinstance(first.stored, State) and first.stored.kind is Kind.SHARDED
    if first.node is None or not (name is None or is_spread):
        return [first]
    others = [node for node in client.get_primaries() if node.name != first.node]
    plan = planned if name is None else None
    return [first, *(_of_node(client, node, plan, layout) for node in others)]


def _of_node(client: Any, node: Any, planned: Header | None, layout: str | None) -> Facts:
    facts = gather(client.get_redis_connection(node), None, planned, layout)
    return replace(facts, node=node.name)


def gather(client: Any, name: str | None, planned: Header | None, layout: str | None = None) -> Facts:
    """Return the facts about a server, the filter `name` and the filter `planned` under that name.

    In a cluster, the server is the node that serves the filter, or any node without a name.

    :raises redis.ConnectionError: there is no server, or it refuses the user or the password.
    """
    whole, (node, client) = client, _node(client, name)
    unchecked: dict[str, str] = {}

    def ask(command: str, call: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return call()
        except ResponseError as error:
            unchecked.setdefault(command, one_line(error))
            return otherwise

    config: dict[str, str] = {}
    for setting in SETTINGS:
        config |= ask("CONFIG GET", partial(client.config_get, setting), {})
    return Facts(
        round_trip=_round_trip(client),
        info=ask("INFO", client.info, {}),
        config=config,
        unchecked=unchecked,
        layout=layout,
        name=name,
        stored=None if name is None else state(whole, name, layout),
        planned=planned,
        node=node,
    )


def _node(client: Any, name: str | None) -> tuple[str | None, Any]:
    """Return a client of one server; with its host and port if it is a node of a cluster."""
    if not is_of_cluster(client):
        return None, client
    node = client.get_primaries()[0] if name is None else client.get_node_from_key(name)
    return str(node.name), client.get_redis_connection(node)


def _round_trip(client: Any) -> float:
    """Return the median time of a PING; a refused PING takes as long."""
    times = []
    for _ in range(_PINGS):
        started = time.perf_counter()
        try:
            client.ping()
        except ResponseError:
            pass
        finally:
            times.append(time.perf_counter() - started)
    return median(times)
