"""Connection to the server of a command, and its URL without the password."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

_OPTION = typer.Option(
    "--url",
    envvar="BLOOMREDIS_URL",
    help="The server: redis://, rediss://, valkey://, unix://, embedded://, embedded:///dir or memory://.",
)
Url = Annotated[str, _OPTION]
OptionalUrl = Annotated[str | None, _OPTION]


def connect(url: str, *, retries: int = 0) -> Any:
    """Return a client of the server at `url`; no error contains the password.

    :param retries: resends of a command after a lost reply; more than 0 only for a filter with
        `retry_safe`, since after the resend of any other add its items are not new.
    """
    from redis.backoff import ExponentialBackoff  # noqa: PLC0415 - for --help to be quick
    from redis.retry import Retry  # noqa: PLC0415

    from bloomredis.embedded import connecting  # noqa: PLC0415 - redis-py takes 0.1 s to import

    _check_userinfo(url)
    return connecting.connect(url, retry=Retry(ExponentialBackoff(cap=1, base=0.05), retries))


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
