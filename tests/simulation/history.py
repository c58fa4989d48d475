"""The history of a run: callers' requests, and the changes that the server made.

The stored data is read after every command, so each change is known with its call. The history goes back
together with the data when the server is rolled back to an older state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

from bloomredis.protocol.receipts import RECEIPT_SECONDS
from tests.rules.items import contradiction

TOKEN_SECONDS: Final = 60.0
"""Seconds for which a retry, by token or on the same object, gets the missing answer."""

State = Literal["running", "answered", "unknown", "void"]


class Violation(AssertionError):  # noqa: N818 - a finding, not a fault of the simulation
    """A broken rule; `rule` is its short name."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class Request:
    """A caller's request about one item or the whole filter, and its outcome.

    :ivar owner: the filter object that was called.
    :ivar earlier: the request whose token it carries.
    :ivar entry: the newest entry of the log when it began.
    :ivar executed: the server's clock when its last command was executed, and the `generation` there.
    :ivar claimed: the times at which its commands got the claim.
    :ivar committed: the entry of the log when a commit was first executed.
    :ivar opened: the entry of the log and the generation that it opened, if any, at the step `opened_at`;
        `told` is the generation in its reply, and `told_at` that step once the reply has come.
    :ivar was_fresh: whether its object had not opened the filter when it began.
    :ivar was_told: whether its object had raised the loss of the generation that it knew.
    :ivar met_loss: whether a command with the identity of a lost filter was refused: False if it may have
        been that of a request that shares the call, or read a piece for the local cache.
    :ivar is_alone: whether no other call ran on its object at the same time.
    :ivar knew: the generations that its object may have known as it began, empty for a new object; None if
        that cannot be said.
    :ivar is_beside: whether a call that accepts the stored filter ran on its object at the same time.
    :ivar got_beside: what other calls of its object opened since it began, as `opened`.
    :ivar emptied: the entry of the log at which a clear() was executed.
    :ivar held: the claim in its answer, or the claim of a commit.
    :ivar holder: the name of the claimer, None without a name.
    :ivar ending: the verb that ends the claim, once that began.
    :ivar is_cancelled: whether its caller left.
    :ivar is_single: whether it was made alone and not in a batch.
    :ivar is_load: whether it asks for no answer.
    :ivar is_repeated: whether a message for it was executed more than once, or had several commands.
    :ivar keys: the receipts and claims in its commands.
    :ivar renews: whether its object renews the claim.
    :ivar wall_error: the seconds by which the wall clock was wrong when its token was made.
    """

    __slots__ = (
        *(
            "answer",
            "claimed",
            "clock",
            "committed",
            "earlier",
            "emptied",
            "ended",
            "ending",
            "ended_clock",
            "ended_now",
            "entry",
            "executed",
            "generation",
            "got_beside",
            "held",
            "holder",
        ),
        *(
            "asker",
            "is_alone",
            "is_beside",
            "is_cancelled",
            "is_load",
            "is_repeated",
            "is_single",
            "item",
            "keys",
            "knew",
            "lease",
            "met_loss",
            "opened",
            "opened_at",
            "was_fresh",
            "was_told",
            "now",
            "owner",
            "ref",
            "renews",
            "started",
            "state",
            "token",
            "told",
            "told_at",
            "verb",
            "wall_error",
        ),
    )

    def __init__(self, ref: str, verb: str, item: int, owner: Any, earlier: Request | None = None) -> None:
        self.ref, self.verb, self.item, self.earlier = ref, verb, item, earlier
        self.owner = self.asker = owner  # the object that has the claim, and the one that made the call
        self.started = self.entry = self.ended = 0
        self.opened_at = self.told_at = -1
        self.now = self.ended_now = 0.0
        self.clock = self.ended_clock = self.executed = self.lease = 0
        self.state: State = "running"
        self.answer: Any = None
        self.token: str | None = None
        self.held: Any = None
        self.generation: bytes | None = None
        self.opened: tuple[int, bytes | None] | None = None
        self.told: bytes | None = None
        self.committed: int | None = None
        self.is_single = True
        self.is_beside = self.was_fresh = self.was_told = False
        self.got_beside = list[tuple[int, bytes | None]]()
        self.emptied: int | None = None
        self.met_loss: bool | None = None
        self.is_load = self.is_repeated = self.renews = False
        self.is_alone = True
        self.knew: frozenset[bytes | None] | None = None
        self.claimed: tuple[int, ...] = ()
        self.is_cancelled = False
        self.ending: str | None = None
        self.holder: str | None = None
        self.keys: set[bytes] = set()
        self.wall_error = 0.0

    def __repr__(self) -> str:
        what = "" if self.item < 0 else f"(x{self.item})"
        return f"{self.ref} {self.owner.name}.{self.verb}{what}"

    @property
    def has_foreign_token(self) -> bool:
        """Whether it carries the token of a call on another object."""
        return self.earlier is not None and self.earlier.owner is not self.owner

    def overlaps(self, other: Request) -> bool:
        """Return whether both were in flight at one moment."""
        return (self.state == "running" or self.ended > other.started) and (
            other.state == "running" or other.ended > self.started
        )


class Change:
    """A change of one item: added (and if it was new) or removed; and the requests that may report it."""

    __slots__ = ("claimants", "generation", "item", "new", "taken", "verb")

    def __init__(
        self, verb: str, item: int, generation: bytes, claimants: Sequence[Request], *, new: bool
    ) -> None:
        self.verb, self.item, self.generation, self.new = verb, item, generation, new
        self.claimants = claimants
        self.taken: Request | None = None


class Entry(NamedTuple):
    """The stored state from one moment on: `now` is on the clock of the clients."""

    now: float
    generation: bytes | None
    counts: tuple[int, ...]


class Stored(NamedTuple):
    """The newest entry with the changes that led to it, by item."""

    entry: Entry
    changes: dict[int, tuple[Change, ...]]


class History:
    """The whole history of a run.

    :ivar unknown: adds and removals without an answer; `left` are other requests without one.
    :ivar step: the number of the current action.
    :ivar rolled_back: the last step at which the server went back to an older state.
    :ivar jumped: the last step at which the server's clock was advanced.
    :ivar evicted: the last step at which a key was evicted.
    :ivar acknowledged: the step at which each generation was marked.
    """

    def __init__(self, items: int, clocks: Callable[[], tuple[float, int]]) -> None:
        self._clocks = clocks
        self.step = 0
        self.rolled_back = self.jumped = -1
        self.evicted: dict[bytes, int] = {}
        self.acknowledged: dict[bytes | None, int] = {}
        now, _ = clocks()
        self.stored = Stored(Entry(now, None, (0,) * items), {})
        self.log = [self.stored.entry]
        self.changes: list[list[Change]] = [[] for _ in range(items)]
        self.requests: list[list[Request]] = [[] for _ in range(items)]
        self.unknown: list[Request] = []
        self.left: list[Request] = []
        self._gone: set[bytes] = set()  # generations that were replaced

    def begin(self, request: Request, now: float, clock: int) -> None:
        """Record the start of a request."""
        request.started, request.entry = self.step, len(self.log) - 1
        request.now, request.clock = now, clock
        if request.item >= 0:
            self.requests[request.item].append(request)

    def end(self, request: Request, state: State, now: float, clock: int) -> None:
        """Record the end of a request."""
        request.state, request.ended = state, self.step
        if state == "unknown" and request.verb in ("add", "remove"):
            self.unknown.append(request)
        elif state == "unknown":
            self.left.append(request)
        request.ended_now, request.ended_clock = now, clock

    def observe(
        self,
        now: float,
        generation: bytes | None,
        counts: tuple[int, ...],
        verb: str,
        requests: Sequence[Request],
    ) -> None:
        """Record the stored state after a command of these requests."""
        before = self.stored
        if generation == before.entry.generation and counts == before.entry.counts:
            return
        same = generation == before.entry.generation
        changes = dict(before.changes) if same else {}
        old = before.entry.counts if same else (0,) * len(counts)
        if not same:
            self._replace(before.entry.generation, generation, verb)
        for item, count in enumerate(counts):
            if count < old[item] and verb != "remove":
                raise Violation(
                    "bits lost", f"x{item} was in {old[item]} times and is in {count} times after {verb!r}"
                )
            if count != old[item]:
                claimants = self._claimants(item, verb, requests)
                made = list(
                    _changes(Change(verb, item, generation or b"", claimants, new=False), old[item], count)
                )
                self.changes[item] += made
                changes[item] = (*changes.get(item, ()), *made)
        self._store(Stored(Entry(now, generation, counts), changes))

    def _replace(self, old: bytes | None, new: bytes | None, verb: str) -> None:
        """Record that another filter is stored; fail if its generation was stored before."""
        if new in self._gone:
            raise Violation("revived", f"a generation that was gone is stored again after {verb!r}")
        if old is not None:
            self._gone.add(old)

    def _claimants(self, item: int, verb: str, requests: Sequence[Request]) -> list[Request]:
        """Return the requests that may report a change of an item."""
        claimants = [each for each in requests if each.item == item and each.verb == verb]
        if claimants or not requests:
            return claimants
        owner = requests[0].owner  # a removal resolves an earlier add first
        return [each for each in self.unknown if (each.item, each.verb, each.owner) == (item, verb, owner)]

    def restore(self, now: float, stored: Stored) -> None:
        """Record that the server went back to an older state."""
        self._gone.clear()
        self._store(Stored(stored.entry._replace(now=now), stored.changes))

    def _store(self, stored: Stored) -> None:
        self.stored = stored
        self.log.append(stored.entry)

    def check(
        self, request: Request, answer: object, entries: Sequence[Entry], *, cached: bool = False
    ) -> None:
        """Check what an answer says about an item, which may also be in the object's cache."""
        counts = [entry.counts[request.item] for entry in entries]
        may_be_in, may_be_out = any(counts) or cached, not all(counts)
        verb = "update" if request.is_load else request.verb
        if rule := contradiction(verb, answer, may_be_in=may_be_in, may_be_out=may_be_out):
            raise Violation(rule, f"{request} was answered {answer!r}, and the item was in {counts} times")

    # -- questions of the rules

    def window(self, request: Request, seconds: float = 0.0) -> list[Entry]:
        """Return the stored states during a request, and for that many seconds before it."""
        first = request.entry
        while first > 0 and seconds and self.log[first].now > request.now - seconds:
            first -= 1
        return self.log[first:]

    def live(self, item: int) -> tuple[Change, ...]:
        """Return the changes of an item that led to the stored state."""
        return self.stored.changes.get(item, ())

    def is_disturbed(self, request: Request) -> bool:
        """Return whether the server has since lost what a request's answer needs.

        An older state has its own receipts; it may lack the claims of the newer one.
        """
        has_waited = self._clocks()[1] - request.clock >= RECEIPT_SECONDS * 1e6
        return (
            (request.lease and self.rolled_back >= request.started)
            or (has_waited and self.jumped >= request.started)
            or any(self.evicted.get(key, -1) >= request.started for key in request.keys)
        )

    def seconds_since(self, request: Request) -> float:
        """Return the seconds since the end of a request, on the clients' clock."""
        return self._clocks()[0] - request.ended_now

    def is_excused(self, request: Request) -> bool:
        """Return whether a retry may get another answer than its first attempt."""
        return not request.owner.retry_safe or self.is_disturbed(request)

    def is_due(self, request: Request) -> bool:
        """Return whether a retry must get the answer that a request did not get, or an error."""
        return request.state == "unknown" and not self.is_excused(request)

    def is_owed(self, request: Request, now: float, clock: int) -> bool:
        """Return whether a request without an answer must get it on retry."""
        return self.may_be_owed(request, now, clock) and not self.is_excused(request)

    def may_be_owed(self, request: Request, now: float, clock: int) -> bool:
        """Return whether a request without an answer may still get it, if nothing was disturbed meanwhile."""
        return (
            request.state == "unknown"
            and now - request.ended_now <= TOKEN_SECONDS
            and clock - request.ended_clock <= TOKEN_SECONDS * 1e6
        )


def _changes(like: Change, before: int, after: int) -> Iterator[Change]:
    """Yield the changes that lead from one count to another."""
    for count in range(before, after) if before < after else range(before - after):
        yield Change(like.verb, like.item, like.generation, like.claimants, new=before < after and count == 0)


def state_of(held: Any) -> Any:
    """Return the state of a claim: a filter returns it in a `Claim`, an operation directly."""
    return getattr(held, "_state", held)
