"""Connections to the server of a command, and its URL without the password."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from bloomredis.protocol.cluster import is_cluster

VARIABLE: Final = "BLOOMREDIS_URL"
LOCALHOST: Final = "redis://localhost:6379"
"""The server of `add`, `check` and `remove`, unless the option or the variable names another."""
Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar=VARIABLE,
        metavar="URL",
        help="The server, such as redis://host:6379/0.",
        show_default=False,
    ),
]
"""The option of commands that need a server."""
OwnUrl = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help=f"The server (default: a private one; {VARIABLE} is not read).",
        show_default=False,
    ),
]
"""The option of commands that can start a private server; they ignore the environment variable."""
Cluster = Annotated[
    bool | None,
    typer.Option(
        "--cluster/--no-cluster",
        help="The whole cluster, or this server alone (default: ask it).",
        show_default=False,
    ),
]
_CLUSTERS = ("redis", "rediss", "valkey", "valkeys")


def connect(url: str, *, cluster: bool | None = None, retries: int = 0) -> Any:
    """Return a client of the server at `url`, or of its cluster; no error contains the password.

    :param cluster: True if the server is a node of a cluster, None to ask the server.
    :param retries: retries of a command after a lost reply.  Give more than 0 only for a filter with
        `retry_safe`: a retried add of any other filter reports its own items as present.
    """
    from redis.backoff import ExponentialBackoff
    from redis.retry import Retry

    from bloomredis.embedded import connecting

    _check_userinfo(url)
    retry = Retry(ExponentialBackoff(cap=1, base=0.05), retries)
    client = connecting.connect(url, retry=retry)
    if scheme(url) not in _CLUSTERS:
        if cluster:
            raise ValueError(f"--cluster needs a --url with host and port, not {redacted(url)}")
        return client
    is_node = _is_node(client, url)
    return _of_cluster(url, retry) if cluster or (cluster is None and is_node) else client


def nodes(client: Any) -> dict[str, Any]:
    """Return a client of each primary of a cluster by host and port; of the only server by an empty name."""
    if not is_of_cluster(client):
        return {"": client}
    return {node.name: client.get_redis_connection(node) for node in client.get_primaries()}


def product(info: Mapping[str, Any]) -> str:
    """Return a server's product and version, by its reply to INFO."""
    name = "valkey" if "valkey_version" in info else "redis"
    return f"{name.capitalize()} {info.get(f'{name}_version', 'of unknown version')}"


def is_of_cluster(client: Any) -> bool:
    """Return True for a client of a whole cluster."""
    kind: Any = type(client)
    return is_cluster(kind)


def _is_node(client: Any, url: str) -> bool:
    """Return True if the server says that it is a node of a cluster; raise `ValueError` for a Sentinel."""
    from redis.exceptions import ResponseError

    try:
        enabled = client.info("cluster").get("cluster_enabled")
        if enabled is None and client.info("server").get("redis_mode") == "sentinel":
            raise ValueError(_of_sentinel(url, [*client.sentinel_masters()]))
    except ResponseError:  # the user may not run INFO
        return False
    return bool(enabled)


def _of_sentinel(url: str, names: list[str]) -> str:
    """Return the message for the URL of a Sentinel, with the names of the primaries that it knows."""
    address = re.split("[/@]", redacted(url).partition("://")[2].rpartition("@")[2])[0]
    name = names[0] if len(names) == 1 else "NAME"
    known = f"; NAME is one of {', '.join(sorted(names))}" if len(names) > 1 else ""
    return (
        f"{redacted(url)} is a Sentinel, which stores no filters; for the primary that it names, give "
        f"sentinel://{address}/{name}{known}"
    )


def _of_cluster(url: str, retry: Any) -> Any:
    """Return a client of all nodes of the cluster that the node at `url` belongs to."""
    from redis import RedisCluster

    kind, _, rest = url.partition("://")
    kind = {"valkey": "redis", "valkeys": "rediss"}.get(kind.lower(), kind.lower())
    return RedisCluster.from_url(f"{kind}://{rest}", retry=retry)


def scheme(url: str) -> str:
    """Return the part before the colon, in lower case."""
    return url.partition(":")[0].lower()


def redacted(url: str) -> str:
    """Return `url` without user, password and options, even if these make it invalid."""
    userinfo, at, address = url.partition("://")[2].rpartition("@")
    if "?" in userinfo:
        address = ""
    return f"{scheme(url)}://{'***@' if at else ''}{address.partition('?')[0]}"


def _check_userinfo(url: str) -> None:
    """Raise if an unquoted character would make part of the password the host name."""
    rest = url.partition("://")[2]
    host = re.split("[/?#]", rest)[0]
    if host and "@" in rest and "@" not in host:
        raise ValueError(f"{redacted(url)} would be misread; in a password, write / ? # @ as %2F %3F %23 %40")
