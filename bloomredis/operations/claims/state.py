"""The options, states and tokens of claims in one process."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal, NamedTuple, Self
from zlib import crc32

from mmh3 import hash_bytes

from bloomredis import arguments
from bloomredis.arguments import shown
from bloomredis.bits.layout import Packing
from bloomredis.errors import ClaimLostError
from bloomredis.protocol import clock
from bloomredis.protocol.pending import LeftClaim
from bloomredis.protocol.receipts import SESSION_AND_CALL, Session, Sessions

ClaimStatus = Literal["claimed", "done", "busy", "released", "lost"]

OWNER_BYTES: Final = 16
_HOLDER_BYTES: Final = 8
_NUMBER: Final = slice(_HOLDER_BYTES, _HOLDER_BYTES + 6)
"""The number of a claim in its owner: 3 bytes of the filter object that made it, then 3 that count."""

STATUSES: Final[dict[str, ClaimStatus]] = {
    "c": "claimed",
    "d": "done",
    "b": "busy",
    "r": "released",
    "l": "lost",
}
"""The statuses by their letters in tokens; the first three are also answers to a claim."""
_LETTERS: Final = {status: letter for letter, status in STATUSES.items()}
_OWN: Final = "o"
"""The letter of a busy item that is held under the name of this claim's holder."""
_TOKEN: Final = (
    r"claim/([0-9a-f]{8})/([cdborl])/([tibe])/((?:[0-9a-f]{2})*)/((?:[0-9a-f]{2}){16,24})/([0-9a-f]{1,14})"
    rf"(?:/{SESSION_AND_CALL})?"
)


class ClaimOptions(NamedTuple):
    """Options of a claim: the lease in milliseconds, and the hash of the holder's name.

    `replaced` are the owners whose claims the call replaces; None if it replaces none, b"" if no further call
    may replace any.
    """

    lease: int
    holder: bytes = b""
    replaced: bytes | None = None

    @classmethod
    def of(cls, lease: float | timedelta, owner: str | None) -> ClaimOptions:
        """Return the options for a caller's arguments, which are checked."""
        duration = arguments.lease(lease)
        return cls(duration, b"" if owner is None else hash_bytes(arguments.owner(owner))[:_HOLDER_BYTES])

    def new_owners(self, sessions: Sessions, count: int) -> list[bytes]:
        """Return unique owner ids; those of a named holder have numbers by the filter object's sessions."""
        size = OWNER_BYTES - _NUMBER.stop if self.holder else OWNER_BYTES
        drawn = os.urandom(size * count)  # at once, since each call of the system takes 0.4 µs
        owners = [drawn] if count == 1 else [drawn[at : at + size] for at in range(0, size * count, size)]
        return [self.holder + sessions.next_number() + each for each in owners] if self.holder else owners


@dataclass(slots=True)
class ClaimState:
    """The state of a claim on an item, as far as this process knows.

    `value` is the value of the claim's key while this process holds the claim: the filter's generation and
    the owner.  `held` is the owner of a busy item that is held under the same holder's name.  `until` is the
    monotonic time at which the lease ends: at the earliest if it is our lease, at the latest if it is another
    worker's.  `packed` is the item as it was sent last, and the layout that it is packed for.
    """

    item: object
    status: ClaimStatus
    encoded: bytes
    value: bytes
    until: float = 0.0
    lease: int = 0  # of the claim call, in ms
    holder: bytes = b""  # hash of the holder's name, if there is one
    held: bytes = b""
    is_finishing: bool = False  # the commit or release has begun; a failed renewal proves nothing then
    loss_unreported: bool = False  # a renewal has found the claim lost, and the caller got no error yet
    session: Session | None = field(default=None, repr=False)  # of a pending commit
    packed: tuple[Packing | None, bytes] = field(default=(None, b""), repr=False)
    left_to: deque[LeftClaim] | None = field(default=None, repr=False)  # until the caller uses the claim

    @classmethod
    def new(cls, item: object, encoded: bytes, options: ClaimOptions) -> Self:
        """Return the state of a claim that is not made yet."""
        return cls(item, "released", encoded, b"", 0.0, options.lease, options.holder)

    @property
    def owner(self) -> bytes:
        """The owner, as in the value."""
        return self.value[-OWNER_BYTES:]

    @property
    def is_own(self) -> bool:
        """True for a busy item that is held under the name of this claim's holder."""
        return self.held != b""

    @property
    def is_replaceable(self) -> bool:
        """True if this claim may replace the holder's other one, which is no later claim of the same object.

        Claims of different objects have no order, since the clocks of machines differ: the new claim wins.
        """
        mine, held = self.owner[_NUMBER], self.held[_NUMBER]
        ahead = (int.from_bytes(held[3:]) - int.from_bytes(mine[3:])) % (1 << 24)
        return self.is_own and not (mine[:3] == held[:3] and ahead < 1 << 23)

    @property
    def remaining(self) -> float:
        """Seconds until the lease ends, as far as this process knows; 0 if no worker holds the item."""
        if self.status not in ("claimed", "busy"):
            return 0.0
        return max(0.0, self.until - clock.now())

    @property
    def is_lost(self) -> bool:
        """True if a call has found the claim lost, or its lease has ended without an extension."""
        return self.status == "lost" or (self.status == "claimed" and self.remaining == 0)

    @property
    def is_renewable(self) -> bool:
        """True while this process holds the claim, and neither commit nor release has begun."""
        return self.status == "claimed" and not self.is_finishing

    def session_of_commit(self, sessions: Sessions, check: int) -> Session:
        """Return the session of the commit, which keeps it until there is an answer."""
        if (session := self.session) is None:
            session = sessions.take()
            session.next_call(crc32(self.encoded, check))
            self.session = session  # only now, since it has this call's number
        elif not session.key:  # the session comes from a token
            session.key = sessions.key(session.name)
        return session

    def end(self) -> None:
        """Record that the commit or release begins."""
        self.left_to, self.is_finishing = None, True

    def use(self) -> None:
        """Record that the caller has the claim."""
        self.left_to = None

    def leave(self) -> None:
        """Leave a claim that nobody has used to the next one of its item; this waits for nothing."""
        left_to, self.left_to = self.left_to, None
        if left_to is not None and self.status == "claimed":
            left_to.append((self.encoded, self.holder, self.owner, self.until))

    __del__ = leave

    def prolong(self, lease: int, sent: float) -> None:
        """Record that the lease lasts for at least `lease` ms after the monotonic time `sent`."""
        self.until = max(self.until, sent + lease / 1000)


def check_held(state: ClaimState) -> None:
    """Raise `ClaimLostError` unless this process holds the claim, as far as it knows."""
    if state.status == "lost":
        raise lost_error(state)
    if state.status != "claimed":
        raise ClaimLostError(
            f"{shown(state.item)} is not held by this worker: its state is {state.status!r}",
            advice="test the claim first: if claim: ...",
        )


def lost_error(state: ClaimState, *, is_done: bool = False) -> ClaimLostError:
    """Record that a claim is lost; return the error for its holder."""
    state.status = "lost"
    now = "the item is done already" if is_done else "another worker may have the item"
    return ClaimLostError(
        f"the claim on {shown(state.item)} is over, and {now}: its lease ended, its owner claimed the "
        "item again, or the filter was cleared; nothing was changed",
        advice="leave renew=True, or take a longer lease",
    )


def is_late(sent: float, lease: int) -> bool:
    """Return whether the answer to a call of the time `sent` took more than a tenth of the lease, in ms.

    The call has waited for a connection, or was retried, so the lease may have begun later than this process
    knows.  A second call begins it anew.
    """
    return clock.now() - sent > lease / 10_000


def busy_until(left: str, holder: bytes) -> tuple[float, bytes]:
    """Return when the lease of a busy item ends, and the owner of the item if the same holder has it.

    :param left: the text about the item in the reply (`claims_of`).
    """
    rest, _, end = left.partition("=")
    until = clock.now() + (int(rest) + 1) / 1000  # a key exists until the millisecond after its last
    return until, holder + bytes.fromhex(end) if end else b""


def token_of(state: ClaimState, name: str) -> str:
    """Return the token of a claim on the filter `name`, from which another process makes the same claim."""
    kind = next(_kinds(state.item, state.encoded))
    until = max(0, int((time.time() + state.until - clock.now()) * 1000))
    letter = _OWN if state.is_own else _LETTERS[state.status]
    parts = [_check(name), letter, kind, state.encoded.hex(), state.value.hex(), f"{until:x}"]
    if state.session is not None:
        parts += [state.session.name, state.session.call]
    return "/".join(("claim", *parts))


def parse_token(token: str, name: str) -> ClaimState:
    """Return the claim of a token.

    :raises ValueError, TypeError: this is no token of a claim, or that of a claim on another filter.
    """
    if not isinstance(token, str):
        raise TypeError(f"token must be a str, not {type(token).__name__} {shown(token)}")
    match = re.fullmatch(_TOKEN, token)
    if match is None:
        raise ValueError(f"token must be that of a claim (claim.token), not {shown(token)}")
    check, letter, kind, encoded, value, until, session, call = match.groups()
    if check != _check(name):
        raise ValueError(f"the token {shown(token)} is for a claim on another filter, not on {name!r}")
    item = bytes.fromhex(encoded)
    state = ClaimState(_item(kind, item), STATUSES.get(letter, "busy"), item, bytes.fromhex(value))
    state.held = state.owner if letter == _OWN else b""
    state.until = clock.now() + int(until, 16) / 1000 - time.time()
    if session is not None:
        state.session = Session(session, b"", [])  # never reused for another call
        state.session.call = call
    return state


def _check(name: str) -> str:
    return f"{crc32(name.encode()):08x}"


def _kinds(item: object, encoded: bytes) -> Iterator[str]:
    """Yield the letters of the types as which an item can be restored from its bytes; `e`: as bytes."""
    kind = {str: "t", int: "i", bytes: "b"}.get(type(item))
    if kind is not None and _item(kind, encoded) == item:
        yield kind
    yield "e"


def _item(kind: str, encoded: bytes) -> str | int | bytes:
    """Return the item of a type that has these bytes; the bytes if the type has no such item."""
    try:
        return encoded.decode() if kind == "t" else int(encoded) if kind == "i" else encoded
    except ValueError:
        return encoded
