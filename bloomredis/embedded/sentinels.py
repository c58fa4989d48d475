"""URLs of Sentinels, such as `sentinel://user:password@host:26379,host2:26379/mymaster/0`."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import redis
from redis.backoff import NoBackoff

from bloomredis.later import imported

PORT: Final = "26379"
_ADDRESS: Final = re.compile(r"(?:\[([\da-fA-F:.]+)\]|([^\[\]:]+))(?::(\d{1,5}))?")
_OWN: Final = "sentinel_"
"""The beginning of the options that are for the connections to the Sentinels."""


class Target(NamedTuple):
    """A primary, and how to reach it."""

    sentinels: list[tuple[str, int]]
    sentinel_options: dict[str, Any]
    name: str
    options: dict[str, Any]


def parsed(scheme: str, rest: str) -> Target:
    """Return what a URL says; raise `ValueError` for a bad one.

    :param scheme: redis-py's scheme for the connections to the servers.
    """
    main, _, query = rest.partition("?")
    authority, _, path = main.partition("/")
    userinfo, at, addresses = authority.rpartition("@")
    name, _, database = path.partition("/")
    if not re.fullmatch(r"\d*", database):
        raise ValueError
    given = query.split("&")
    own = "&".join(each for each in given if not each.startswith(_OWN))
    of_sentinels = "&".join(each.removeprefix(_OWN) for each in given if each.startswith(_OWN))
    options = _options(f"{scheme}://{userinfo}{at}host/{database}?{own}")
    sentinel_options = {
        key: value for key, value in options.items() if key.startswith(("socket_", "ssl"))
    } | _options(f"{scheme}://host?{of_sentinels}")
    _hide_password(sentinel_options)
    sentinels = [_address(each) for each in addresses.split(",")]
    return Target(sentinels, sentinel_options, unquote(name), options)


def _options(url: str) -> dict[str, Any]:
    """Return the options of a client in a URL of redis-py, without the host."""
    options: dict[str, Any] = redis.connection.parse_url(url)  # type: ignore[no-untyped-call]  # untyped in redis-py
    del options["host"]
    if options.pop("connection_class", None) is not None:
        options["ssl"] = True
    return options


def _hide_password(options: dict[str, Any]) -> None:
    """Put user name and password where redis-py does not print them: its error shows the other options."""
    user, password = options.pop("username", None), options.pop("password", None)
    if password is not None:
        options["credential_provider"] = redis.UsernamePasswordCredentialProvider(user, password)


def _address(text: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise ValueError
    return found[1] or found[2], int(found[3] or PORT)


def client(target: Target, module: Any, usual: dict[str, Any], options: dict[str, Any]) -> Any:
    """Return a client of the primary, which follows a failover; nothing is sent.

    :param module: `redis` or `redis.asyncio`.
    :param usual: the options that those of the URL replace.
    """
    theirs: Any = imported(f"{module.__name__}.sentinel")
    retry = imported(f"{module.__name__}.retry").Retry(NoBackoff(), 0)  # the next one is asked
    sentinel = theirs.Sentinel(target.sentinels, sentinel_kwargs={"retry": retry} | target.sentinel_options)
    return sentinel.master_for(target.name, **usual | target.options | options)
