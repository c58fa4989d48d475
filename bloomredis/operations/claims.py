"""Claims: a worker holds an item while it works on it; check and set in two steps.

A claim is a key of its own in the filter's hash slot, which names the owner and expires with the
lease.  Whether an item is done, held by another worker or free is decided in one script, and so is a
commit: the item's bits are set and its claim is dropped together, or neither.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, TypeVar
from zlib import crc32

from mmh3 import hash_bytes

from bloomredis.arguments import shown
from bloomredis.errors import ClaimLostError
from bloomredis.operations.outcomes import raise_interrupted
from bloomredis.protocol import scripts
from bloomredis.protocol.calls import call
from bloomredis.protocol.forks import renewed_after_fork
from bloomredis.protocol.keys import as_bytes, auxiliary_prefix
from bloomredis.protocol.receipts import Lane, Lanes, give_back
from bloomredis.protocol.replies import outcome_matters
from bloomredis.protocol.steps import Op
from bloomredis.stored.base import Stored
from bloomredis.stored.handle import Handle, LayoutChanged

State = Literal["claimed", "done", "busy", "released", "lost"]
C = TypeVar("C")

_CLAIM, _COMMIT, _RELEASE, _EXTEND = map(scripts.load, ("claim", "commit", "release", "extend"))
_STATES: Final[dict[str, State]] = {"c": "claimed", "d": "done", "b": "busy"}
_OWNER_BYTES: Final = 16
_MOST_ITEMS: Final = 200
"""Items that one script claims: each costs it two more commands than its probes."""

_AGAIN: Final = "a second call on the same object answers as this one would have"


@dataclass(slots=True)
class Held:
    """A claim on an item, as far as this worker knows."""

    item: Any
    state: State
    key: bytes
    encoded: bytes
    value: bytes  # what the key holds while the claim is ours: the filter's generation and the owner
    lane: Lane | None = field(default=None, repr=False)  # of a commit that has no answer yet


class Claims:
    """The claims that one filter object makes."""

    def __init__(self, stored: Stored, lanes: Lanes, *, retry_safe: bool) -> None:
        self._stored = stored
        self._lanes = lanes
        self._retry_safe = retry_safe
        self._prefix = auxiliary_prefix(stored.key) + b"claim:"
        self.renew()

    def renew(self) -> None:
        """Forget all claims: a forked child does not hold those of its parent."""
        self._pending: dict[bytes, bytes] = {}  # owners in calls without an answer, by the claim's key
        renewed_after_fork(self)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pending": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.renew()

    def claim(self, encoded: bytes, item: Any, lease: int, make: Callable[[Held], C]) -> Op[C]:
        """Claim an item for `lease` ms; return `make(held)`."""

        def work(handle: Handle) -> Op[C]:
            packed = handle.layout.pack_one(encoded)
            (held,) = yield from self._claim(handle, [encoded], [item], packed, lease)
            return make(held)

        return self._stored.attempt(work)

    def claim_many(
        self, encoded: Sequence[str | bytes], items: Sequence[Any], lease: int, make: Callable[[Held], C]
    ) -> Op[list[C]]:
        """Claim items, which have been encoded, some in each script."""
        claims: list[Held] = []
        try:
            while len(claims) < len(items):
                handle = yield from self._stored.acquire()
                run = slice(len(claims), len(claims) + min(_MOST_ITEMS, handle.items))
                packed = handle.layout.pack(encoded[run])
                with suppress(LayoutChanged):
                    claims += yield from self._claim(handle, encoded[run], items[run], packed, lease)
        except Exception as error:
            raise_interrupted("claim_many", list(map(make, claims)), items, error)
        except BaseException:  # the caller was cancelled or interrupted
            for held in claims:
                self.claim_again(held)
            raise
        return list(map(make, claims))

    def _claim(
        self, handle: Handle, encoded: Sequence[str | bytes], items: Sequence[Any], packed: bytes, lease: int
    ) -> Op[list[Held]]:
        """Claim packed items in one script; an owner whose call was not answered is used again."""
        keys = [self._prefix + hash_bytes(item).hex().encode() for item in encoded]
        owners = [self._pending.pop(key, b"") or os.urandom(_OWNER_BYTES) for key in keys]
        try:
            with outcome_matters(self._stored.name, _AGAIN):
                reply = yield from self._stored.run(_CLAIM, handle, (packed, lease, b"".join(owners)), keys)
        except BaseException:
            for key, owner in zip(keys, owners, strict=True):
                self._pending.setdefault(key, owner)
            raise
        states = reply if isinstance(reply, str) else reply.decode()
        return [
            Held(item, _STATES[state], key, as_bytes(code), handle.generation + owner)
            for item, state, key, code, owner in zip(items, states, keys, encoded, owners, strict=True)
        ]

    def commit(self, held: Held) -> Op[None]:
        """Put the item into the filter and drop the claim."""
        if held.state == "done":
            return
        self._check(held)
        yield from self._stored.attempt(partial(self._commit, held=held))

    def _commit(self, handle: Handle, held: Held) -> Op[None]:
        if not held.value.startswith(handle.generation):
            raise self._lost(held)
        owner = held.value[-_OWNER_BYTES:]
        keys, arguments = [held.key], [handle.layout.pack_one(held.encoded), owner]
        if self._retry_safe:
            if held.lane is None:
                held.lane = self._lanes.take()
                held.lane.next_call(crc32(held.encoded, handle.check))
            keys.append(held.lane.key)
            arguments.append(held.lane.call.encode())
        with outcome_matters(self._stored.name, _AGAIN):
            reply = yield from self._stored.run(_COMMIT, handle, arguments, keys, again=self._retry_safe)
        if held.lane is not None:
            give_back(held.lane)
            held.lane = None
        if reply != 1:
            raise self._lost(held)
        held.state = "done"

    def release(self, held: Held) -> Op[None]:
        """Give the item back; nothing happens if it is not held any more."""
        if held.state == "claimed":
            yield from self._call(_RELEASE, [held.key], held, [])
            held.state = "released"

    def extend(self, held: Held, lease: int) -> Op[None]:
        """Hold the item for `lease` ms from now."""
        self._check(held)
        keys = [held.key, self._stored.key] if self._stored.has_layers else [held.key]
        if (yield from self._call(_EXTEND, keys, held, [lease])) != 1:
            raise self._lost(held)

    def claim_again(self, held: Held) -> None:
        """Let the next claim of the item return this one."""
        if held.state == "claimed":
            self._pending.setdefault(held.key, held.value[-_OWNER_BYTES:])

    def _call(self, script: scripts.Script, keys: list[bytes], held: Held, arguments: list[int]) -> Op[Any]:
        with outcome_matters(self._stored.name, _AGAIN):
            return (yield from call(script, keys, [held.value, *arguments], self._stored.wait))

    def _check(self, held: Held) -> None:
        if held.state != "claimed":
            raise ClaimLostError(
                f"{shown(held.item)} is not held by this worker: its state is {held.state!r}"
            )

    def _lost(self, held: Held) -> ClaimLostError:
        held.state = "lost"
        return ClaimLostError(
            f"the claim on {shown(held.item)} ran out or its filter was cleared, and another worker "
            "may have it; nothing was changed: take a longer lease, or extend() it in time"
        )
