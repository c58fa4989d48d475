"""Claims as one process knows them: their terms, their states, and the tokens that hand them on."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal
from zlib import crc32

from mmh3 import hash_bytes

from bloomredis import arguments
from bloomredis.arguments import shown
from bloomredis.protocol import clock
from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.receipts import LANE_AND_CALL, Lane, Lanes
from bloomredis.stored.state.claim_calls import OWNER_BYTES

State = Literal["claimed", "done", "busy", "released", "lost"]

_HOLDER_BYTES: Final = 8
_TIME_BYTES: Final = 6

_STATES: Final[dict[str, State]] = {"c": "claimed", "d": "done", "b": "busy", "r": "released", "l": "lost"}
_LETTERS: Final = {state: letter for letter, state in _STATES.items()}
_TOKEN: Final = re.compile(
    r"claim/([0-9a-f]{8})/([cdbrl])/([tibe])/((?:[0-9a-f]{2})*)/((?:[0-9a-f]{2}){16,24})/([0-9a-f]{1,14})"
    rf"(?:/{LANE_AND_CALL})?"
)


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a claim: the lease in milliseconds, and the mark of a holder with a name."""

    lease: int
    holder: bytes = b""

    @classmethod
    def of(cls, lease: float | timedelta, owner: str | None) -> Terms:
        """Check what a caller gives."""
        duration = arguments.milliseconds("lease", lease)
        return cls(duration, b"" if owner is None else hash_bytes(arguments.owner(owner))[:_HOLDER_BYTES])

    def new_owner(self) -> bytes:
        """Return the owner of a new claim: nobody else's, and that of its holder at this time."""
        if not self.holder:
            return os.urandom(OWNER_BYTES)
        now = int(time.time() * 1000).to_bytes(_TIME_BYTES)
        return self.holder + now + os.urandom(OWNER_BYTES - _HOLDER_BYTES - _TIME_BYTES)


@dataclass(slots=True)
class Held:
    """A claim on an item, as far as this process knows.

    `value` is what the claim's key holds while it is ours: the filter's generation and the owner.  `until` is
    the monotonic time at which it is over: at the earliest if it is ours, at the latest if it is another's.
    """

    item: object
    state: State
    encoded: bytes
    value: bytes
    until: float = 0.0
    lease: int = 0  # that it was claimed for, in ms
    holder: bytes = b""  # with a name
    ending: bool = False  # its commit or release has begun, after which a renewal proves nothing
    is_unreported: bool = False  # a renewal has found it lost, and the caller has had no error yet
    at_end: Callable[[], object] | None = field(default=None, repr=False)  # called then
    lane: Lane | None = field(default=None, repr=False)  # of a commit that has no answer yet

    @property
    def owner(self) -> bytes:
        """The owner in the value."""
        return self.value[-OWNER_BYTES:]

    @property
    def remaining(self) -> float:
        """Seconds until the lease is over, as far as this process knows; 0 for an item that nobody holds."""
        if self.state not in ("claimed", "busy"):
            return 0.0
        return max(0.0, self.until - clock.now())

    @property
    def is_lost(self) -> bool:
        """True if a call has found it lost, or its lease is over and was not extended in time."""
        return self.state == "lost" or (self.state == "claimed" and self.remaining == 0)

    @property
    def is_renewable(self) -> bool:
        """True while it is ours, and neither its commit nor its release has begun."""
        return self.state == "claimed" and not self.ending

    def lane_of_commit(self, lanes: Lanes, check: int) -> Lane:
        """Return the lane of its commit, which has it until there is an answer."""
        if (lane := self.lane) is None:
            lane = lanes.take()
            lane.next_call(crc32(self.encoded, check))
            self.lane = lane  # with the number of this call, not of the last
        elif not lane.key:  # that of a token
            lane.key = lanes.key(lane.name)
        return lane

    def end(self) -> None:
        """Begin to commit or to release it."""
        self.ending = True
        if self.at_end is not None:
            self.at_end()
            self.at_end = None

    def prolong(self, lease: int, sent: float) -> None:
        """Note that it is held for `lease` ms from that monotonic time on, at least."""
        self.until = max(self.until, sent + lease / 1000)


def answered(
    answers: str,
    busy: Sequence[int],
    terms: Terms,
    sent: float,
    claims: Iterable[tuple[object, str | bytes, bytes]],
) -> list[Held]:
    """Return the claims of a call that was sent at that monotonic time, by what `claims_of` says."""
    # A key is there until the millisecond after the one that it lasts to.
    own, others = sent + terms.lease / 1000, (clock.now() + (left + 1) / 1000 for left in busy)
    return [
        Held(
            item,
            _STATES[answer],
            as_bytes(code),
            value,
            until=next(others) if answer == "b" else own,
            lease=terms.lease,
            holder=terms.holder,
        )
        for answer, (item, code, value) in zip(answers, claims, strict=True)
    ]


def token_of(held: Held, name: str) -> str:
    """Return a token of a claim on that filter, from which another process makes the same claim."""
    kind = next(_kinds(held.item, held.encoded))
    until = max(0, int((time.time() + held.until - clock.now()) * 1000))
    parts = [_check(name), _LETTERS[held.state], kind, held.encoded.hex(), held.value.hex(), f"{until:x}"]
    if held.lane is not None:
        parts += [held.lane.name, held.lane.call]
    return "/".join(("claim", *parts))


def parse_token(token: str, name: str) -> Held:
    """Return the claim of a token.

    :raises ValueError, TypeError: it is no token of a claim, or that of another filter.
    """
    if not isinstance(token, str):
        raise TypeError(f"token must be a str, not {type(token).__name__} {shown(token)}")
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise ValueError(f"token must be that of a claim (claim.token), not {shown(token)}")
    check, letter, kind, encoded, value, until, lane, call = match.groups()
    if check != _check(name):
        raise ValueError(f"the token {shown(token)} is that of a claim on another filter, not on {name!r}")
    item = bytes.fromhex(encoded)
    held = Held(_item(kind, item), _STATES[letter], item, bytes.fromhex(value))
    held.until = clock.now() + int(until, 16) / 1000 - time.time()
    if lane is not None:
        held.lane = Lane(lane, b"", [])  # used for this commit, and for no other call
        held.lane.call = call
    return held


def _check(name: str) -> str:
    return f"{crc32(name.encode()):08x}"


def _kinds(item: object, encoded: bytes) -> Iterator[str]:
    """Yield the letters of the types that an item may be made from its bytes as; `e` is the bytes alone."""
    kind = {str: "t", int: "i", bytes: "b"}.get(type(item))
    if kind is not None and _item(kind, encoded) == item:
        yield kind
    yield "e"


def _item(kind: str, encoded: bytes) -> str | int | bytes:
    """Return the item of a type that has these bytes; the bytes if there is none."""
    try:
        return encoded.decode() if kind == "t" else int(encoded) if kind == "i" else encoded
    except ValueError:
        return encoded
