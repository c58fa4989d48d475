"""A server in this process: the database, the scripts in a Lua interpreter, and clients' commands."""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from hashlib import sha1
from pathlib import Path
from typing import Any, Final

from tests.simulation import module
from tests.simulation.database import Database, ServerError
from tests.simulation.module import Module

VERSION: Final = 0x00090102
REFUSES: Final = "the server refuses"
"""Part of each error by which a fault lets the server refuse."""
START: Final = 1_700_000_000_000_000
"""The clock at the start, in microseconds."""

_LISTS: Final = (b"TIME", b"BITFIELD", b"BF.INSERT", b"BF.MADD", b"BF.MEXISTS")
_SHAPES: Final = {
    b"SET": b"status",
    b"RENAME": b"status",
    b"BF.INFO": b"names",
    **dict.fromkeys(_LISTS, b"list"),
}
COMMANDS: Final = (
    "get",
    "set",
    "getrange",
    "setrange",
    "strlen",
    "incr",
    "getbit",
    "setbit",
    "bitcount",
    "bitop",
    "bitfield",
    "hget",
    "hset",
    "exists",
    "unlink",
    "del",
    "rename",
    "pttl",
    "persist",
    "pexpire",
    "pexpireat",
    "time",
    "flushall",
    *module.COMMANDS,
)
"""The commands that scripts may call."""


_LENGTHS: Final[dict[str, Callable[..., int]]] = {
    "setrange": lambda start, piece: int(start) + len(piece) if piece else 0,
    "setbit": lambda offset, _: (int(offset) >> 3) + 1,
    "getbit": lambda offset: (int(offset) >> 3) + 1,
    "bitfield": lambda *words: max((int(word[1:]) >> 1) + 1 for word in words if word[:1] == b"#"),
}
"""The lengths of the strings that commands need, from their arguments after the key."""


def _lua() -> types.ModuleType:
    """Return an interpreter of Lua 5.1, with a compiler where one exists."""
    try:
        return importlib.import_module("lupa.luajit21")
    except ImportError:
        return importlib.import_module("lupa.lua51")


class Scripts:
    """Compiled scripts; after SCRIPT FLUSH a server compiles none of them twice."""

    def __init__(self, command: Callable[[str], Callable[..., Any]]) -> None:
        self._lua = _lua().LuaRuntime(encoding=None, unpack_returned_tuples=True)
        prelude = (Path(__file__).parent / "prelude.lua").read_bytes()
        names = self._lua.table_from({name.upper().encode(): command(name) for name in COMMANDS})
        self._run = self._compile(prelude)(names, self._lua.table_from(_SHAPES), _sha1hex, VERSION)
        self._functions: dict[str, Any] = {}

    def _compile(self, text: bytes) -> Any:
        return self._lua.compile(text)

    def run(self, sha: str, text: bytes, count: int, words: Sequence[bytes]) -> Any:
        """Return the reply of a script, or raise `ServerError`."""
        function = self._functions.get(sha)
        if function is None:
            function = self._functions[sha] = self._compile(text)
        kind, value = self._run(function, count, *words)
        if kind == b"error":
            raise ServerError(value.decode())
        return _reply(value)


def _sha1hex(text: bytes) -> bytes:
    return sha1(text, usedforsecurity=False).hexdigest().encode()


@cache
def _sha_of(text: bytes) -> str:
    return _sha1hex(text).decode()


def _reply(value: Any) -> Any:
    """Return the client's form of a script's result."""
    if isinstance(value, bool):
        return 1 if value else None
    if isinstance(value, float):
        return int(value)
    if value is None or isinstance(value, int | bytes):
        return value
    if value[b"ok"] is not None:
        return value[b"ok"]
    replies = []
    for i in range(1, len(value) + 1):
        if value[i] is None:
            break
        replies.append(_reply(value[i]))
    return replies


class Server:
    """One primary; `replicas` of them confirm a write.

    :ivar denied: verbs that the user has no right to.
    :ivar longest: the largest length of a string in bytes that a command may write to or read a bit of.
    """

    def __init__(self) -> None:
        self.data = Database(START)
        self._module = Module(self.data)
        self._scripts = Scripts(self._command)
        self.reset()

    def reset(self) -> None:
        """Begin with no data, no script and the clock at its start."""
        self.data.now = START
        self.data.flushall()
        self._known: dict[str, bytes] = {}
        self.denied: frozenset[str] = frozenset()
        self.longest = 1 << 29
        self.replicas = 2

    def learn(self, texts: Mapping[str, bytes]) -> None:
        """Load scripts, given by their SHAs."""
        self._known.update(texts)

    def flush_scripts(self) -> None:
        """Remove all scripts."""
        self._known.clear()

    def execute(self, command: Sequence[str | bytes | int]) -> Any:
        """Execute a command and return its reply, or raise `ServerError`."""
        verb, *words = map(_encoded, command)
        special = _SPECIAL.get(verb)
        if special is not None:
            return special(self, *words)
        name = verb.decode().lower()
        if name not in COMMANDS:
            raise ServerError(f"ERR unknown command '{name}'")
        if name in self.denied:
            raise _denied(name)
        return _plain(self._method(name)(*words))

    def _method(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any]
        if name.startswith("bf."):
            method = getattr(self._module, name.removeprefix("bf."))
        else:
            method = getattr(self.data, "unlink" if name == "del" else name)
        return method

    def _command(self, name: str) -> Callable[..., Any]:
        """Return a command for scripts: it returns None and the text of an error instead of raising it."""
        method = self._method(name)

        def command(*words: Any) -> Any:
            if name in self.denied:
                return None, str(_denied(name)).encode()
            if name in _LENGTHS and _LENGTHS[name](*words[1:]) > self.longest:
                return None, f"ERR {REFUSES} a string of this length".encode()
            try:
                return method(*words)
            except ServerError as error:
                return None, str(error).encode()

        return command

    def _evalsha(self, sha: bytes, count: bytes, *words: bytes) -> Any:
        name = sha.decode().lower()
        text = self._known.get(name)
        if text is None:
            raise ServerError("NOSCRIPT No matching script.")
        return self._scripts.run(name, text, int(count), words)

    def _eval(self, text: bytes, count: bytes, *words: bytes) -> Any:
        sha = _sha_of(text)
        self._known[sha] = text
        return self._scripts.run(sha, text, int(count), words)

    def _script(self, verb: bytes, *words: bytes) -> Any:
        if verb.upper() == b"FLUSH":
            self.flush_scripts()
            return b"OK"
        if verb.upper() == b"LOAD":
            self._known[_sha_of(words[0])] = words[0]
            return _sha_of(words[0]).encode()
        raise ServerError(f"ERR unknown subcommand {verb.decode()!r}")

    def _wait(self, count: bytes, timeout: bytes) -> int:
        _ = count, timeout
        return self.replicas


_SPECIAL: Final[dict[bytes, Callable[..., Any]]] = {
    b"EVALSHA": Server._evalsha,
    b"EVAL": Server._eval,
    b"SCRIPT": Server._script,
    b"WAIT": Server._wait,
}


def _encoded(word: str | bytes | int) -> bytes:
    if isinstance(word, bytes):
        return word
    return word.encode() if isinstance(word, str) else b"%d" % word


def _denied(name: str) -> ServerError:
    return ServerError(f"NOPERM {REFUSES} the command {name!r}")


def _plain(reply: Any) -> Any:
    return list(reply) if isinstance(reply, tuple) else reply
