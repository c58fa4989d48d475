"""Connection to the server of a command, and its URL without the password."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from bloomredis.protocol.cluster import is_cluster

_OPTION = typer.Option(
    "--url",
    envvar="BLOOMREDIS_URL",
    help="The server: redis://, rediss://, valkey://, unix://, embedded://, embedded:///dir or memory://.",
)
Url = Annotated[str, _OPTION]
OptionalUrl = Annotated[str | None, _OPTION]
Cluster = Annotated[
    bool | None,
    typer.Option(
        "--cluster/--no-cluster",
        help="The server is a node of a cluster, and all of it is used; the server is asked if not given.",
        show_default=False,
    ),
]
_CLUSTERS = ("redis", "rediss", "valkey", "valkeys")


def connect(url: str, *, cluster: bool | None = None, retries: int = 0) -> Any:
    """Return a client of the server at `url`, or of its cluster; no error contains the password.

    :param cluster: whether the server is a node of a cluster; None to ask it.
    :param retries: resends of a command after a lost reply; more than 0 only for a filter with
        `retry_safe`, since after the resend of any other add its items are not new.
    """
    from redis.backoff import ExponentialBackoff  # noqa: PLC0415 - for --help to be quick
    from redis.retry import Retry  # noqa: PLC0415

    from bloomredis.embedded import connecting  # noqa: PLC0415 - redis-py takes 0.1 s to import

    _check_userinfo(url)
    retry = Retry(ExponentialBackoff(cap=1, base=0.05), retries)
    client = connecting.connect(url, retry=retry)
    if scheme(url) not in _CLUSTERS:
        if cluster:
            raise ValueError(f"--cluster needs a --url with host and port, not {redacted(url)}")
        return client
    if cluster or (cluster is None and _is_node(client)):
        return _of_cluster(url, retry)
    return client


def is_of_cluster(client: Any) -> bool:
    """Return True for a client of a whole cluster."""
    kind: Any = type(client)
    return is_cluster(kind)


def _is_node(client: Any) -> bool:
    """Return True if the server says that it is a node of a cluster, and serves slots."""
    from redis.exceptions import ResponseError  # noqa: PLC0415 - as in connect()

    try:
        return bool(client.info("cluster").get("cluster_enabled"))
    except ResponseError:  # not everybody may ask
        return False


def _of_cluster(url: str, retry: Any) -> Any:
    """Return a client of all nodes of the cluster that the node at `url` belongs to."""
    from redis import RedisCluster  # noqa: PLC0415 - as in connect()

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
