"""Trials of scripts: each call is refused for each possible reason, and the keys are compared.

A refused call must leave all keys as they were. Once the reason is gone, the same call gets the reply, and
leaves the data, that it would have got and left at first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import redis

from tests.support.proxy import Exchange, passed
from tests.support.servers import Server

State = dict[bytes, tuple[bytes, bool]]
"""Each key with its value and whether it expires, without receipts: they may say that a call was begun."""

SETTINGS: Final = {
    "OOM": ("maxmemory", 1, 0),
    "NOREPLICAS": ("min-replicas-to-write", 1, 0),
    "SIZE": ("proto-max-bulk-len", 1 << 20, 512 << 20),
}
"""Limits that can change while the server runs: the setting, a value that refuses, the usual value."""

OUTSIDE: Final = {"evalsha", "eval", "config|resetstat", "config", "info"}
"""Commands that the test or the client sends."""

MAKING: Final = {"reserve", "clear", "add_layer", "reserve_record", "adopt", "mark"}
"""Scripts whose data contain the time or random bytes."""


class Snapshot(NamedTuple):
    """All keys of a server, with their times to live."""

    values: dict[bytes, tuple[bytes, int]]

    @classmethod
    def of(cls, admin: redis.Redis) -> Snapshot:
        keys: list[bytes] = sorted(admin.scan_iter(count=1000))
        pipe = admin.pipeline(transaction=False)
        for key in keys:
            pipe.dump(key)
            pipe.pttl(key)
        replies = pipe.execute()
        pairs = zip(replies[::2], replies[1::2], strict=True)
        return cls({key: pair for key, pair in zip(keys, pairs, strict=True) if pair[0] is not None})

    def restore(self, admin: redis.Redis) -> None:
        pipe = admin.pipeline(transaction=False)
        pipe.flushall()
        for key, (value, left) in self.values.items():
            pipe.restore(key, max(0, left), value)
        pipe.execute()

    @property
    def state(self) -> State:
        kept = ((key, pair) for key, pair in self.values.items() if b":receipt:" not in key)
        return {key: (value, left >= 0) for key, (value, left) in kept}

    @property
    def shape(self) -> dict[bytes, bool]:
        return {key: expires for key, (_, expires) in self.state.items()}


class Trials:
    """The fate of each request at the proxy: trials of the scripts that it calls.

    :param reasons: the only reasons to try; all if empty.
    :ivar wrong: the trials that broke the rule.
    :ivar refused: the reasons for which a call was refused.
    """

    def __init__(self, server: Server, reasons: set[str]) -> None:
        self.wrong: list[str] = []
        self.refused: set[str] = set()
        self._admin: Any = server.client()
        self._reasons = reasons
        self._set_rights("reset", "on", ">pw", "~*", "+@all")
        self._worker: Any = server.client(username="worker", password="pw")  # noqa: S106 - a test server's password
        self._worker.response_callbacks.clear()
        self._seen: set[tuple[str, frozenset[tuple[str, bool]]]] = set()

    def __call__(self, exchange: Exchange) -> bool:
        command = exchange.arguments
        if exchange.verb in ("", "time") or not command[0].startswith(b"EVAL"):
            return passed(exchange)
        before = Snapshot.of(self._admin)
        self._admin.config_resetstat()
        reply = exchange.execute()
        called = self._called()
        signature = exchange.verb, frozenset((name, calls > 1) for name, calls in called.items())
        if reply[:1] != b"-" and signature not in self._seen:
            self._seen.add(signature)
            after = Snapshot.of(self._admin)
            for reason in self._reasons or {*called, *SETTINGS}:
                self._try(exchange.verb, command, before, after, reason)
            after.restore(self._admin)
        exchange.answer(reply)
        return True

    def _called(self) -> dict[str, int]:
        """Return how often the script called each command."""
        stats = self._admin.info("commandstats")
        called = {name.removeprefix("cmdstat_").lower(): stat["calls"] for name, stat in stats.items()}
        return {name: calls for name, calls in called.items() if name not in OUTSIDE}

    def _try(self, verb: str, command: list[bytes], before: Snapshot, after: Snapshot, reason: str) -> None:
        before.restore(self._admin)
        expected = self._replied(command)
        before.restore(self._admin)
        with self._refusing(reason):
            reply = self._replied(command)
        if isinstance(reply, redis.ResponseError):
            self.refused.add(reason)
            found = Snapshot.of(self._admin)
            if found.state != before.state:
                self.wrong.append(
                    f"{verb}, refused for {reason}, changed {_difference(before.state, found.state)}"
                )
            reply = self._replied(command)
        found = Snapshot.of(self._admin)
        if _comparable(reply) != _comparable(expected):
            self.wrong.append(f"{verb}, refused for {reason} and sent again: {reply!r}, not {expected!r}")
        elif found.shape != after.shape or (verb not in MAKING and found.state != after.state):
            self.wrong.append(
                f"{verb}, refused for {reason} and sent again: {_difference(after.state, found.state)}"
            )

    def _replied(self, command: list[bytes]) -> Any:
        try:
            return self._worker.execute_command(*command)
        except redis.ResponseError as error:
            return error

    @contextmanager
    def _refusing(self, reason: str) -> Iterator[None]:
        name, low, usual = SETTINGS.get(reason, ("", 0, 0))
        if not name:
            self._set_rights(f"-{reason}")
        else:
            self._admin.config_set(name, low)
        try:
            yield
        finally:
            if not name:
                self._set_rights("+@all")
            else:
                self._admin.config_set(name, usual)

    def _set_rights(self, *rules: str) -> None:
        self._admin.execute_command("ACL", "SETUSER", "worker", *rules)

    def close(self) -> None:
        self._admin.close()
        self._worker.close()


def _difference(before: State, after: State) -> list[bytes]:
    return sorted(key for key in {*before, *after} if before.get(key) != after.get(key))


def _comparable(reply: Any) -> Any:
    """Return a reply without times and random bytes."""
    if isinstance(reply, list):
        return [len(each) if isinstance(each, bytes) else type(each) for each in reply]
    return re.sub(rb" \d+", b" ms", reply) if isinstance(reply, bytes) else reply
