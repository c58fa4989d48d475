"""Stored state: what lies under a filter's keys, and whether it is still what this object knows.

Every script call carries the identity that this object knows, so a loss is noticed by the very call that
meets it, before it touches anything.

    state    | the next call
    ---------|----------------------------------------------------------------------------------------
    unopened | opens the filter: creates or checks it
    open     | goes to the filter that the handle names
    lost     | raises `FilterLostError`
    telling  | opens the filter in the thread that runs the callback `on_lost`; raises in any other

    what happens                            | unopened | open     | lost     | telling
    ----------------------------------------|----------|----------|----------|---------
    the filter was opened, or followed      | open     | open     | open     | open
    the handle is dropped                   | unopened | unopened | lost     | telling
    reset(): clear() or delete() begins     | unopened | unopened | unopened | unopened
    take(): reserve() begins                | unopened | open     | unopened | unopened
    a loss; on_lost="raise"                 | lost     | lost     | lost     | -
    a loss; on_lost="recreate"              | unopened | unopened | -        | -
    a loss; on_lost is a callback           | telling  | telling  | telling  | telling
    a loss while clear() or delete() runs   | unopened | unopened | lost     | telling
    the callback returns                    | unopened | open     | -        | unopened
    the callback raises                     | lost     | lost     | -        | lost

Any of these may happen in any state, since threads share an object: one notices a loss while another opens or
clears the filter.  So what was found is accepted only if nothing has changed since it was asked for
(`_open_by`), and a loss counts once for each handle (`lose`).  A callback that opens the filter itself lets
all threads go on.  A sharded filter's take() is a reset() too.  Only this module and versioned.py change the
state.

What a script's refusal means is in the table `RECOVERY` of each class.  MISSING, CHANGED, FOREIGN and
WRONGTYPE are losses; but where others have begun a layer or a rebuild (CHANGED, STALE), or a layer is full or
all have ended (FULL, ENDED), the object goes on with what continues its filter.  A layer that has vanished
(DAMAGED) is a loss after which the filter is empty.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypedDict, TypeVar, Unpack
from zlib import crc32

from bloomredis.bits.batch import Encoded
from bloomredis.bits.blocked import Blocked
from bloomredis.bits.layout import Layout, Packing
from bloomredis.errors import BloomError, FilterMismatchError, FilterNotFoundError
from bloomredis.protocol import replies, scripts
from bloomredis.protocol.calls import ScriptCall, Wait, answered
from bloomredis.protocol.forms import integer
from bloomredis.protocol.keys import auxiliary_prefix
from bloomredis.protocol.replies import Refusal, checked, flags_of
from bloomredis.protocol.steps import Op, Outcome, Part, Reply
from bloomredis.stored.state.handle import (
    IN_BLOCKS,
    LAYERED,
    WHOLE,
    Description,
    Handle,
    LayoutChanged,
    UnderWay,
)
from bloomredis.stored.state.item_calls import Contains, FilterCall, Template

R = TypeVar("R")
T = TypeVar("T")
Arguments = Sequence[Part]

PROBES_A_CALL: Final = 3000
"""Probes that one script makes at most: 2 ms on the slowest server measured (0.67 us each, Redis 7.0)."""

UNBOUNDED: Final = 1 << 62
"""More items than are ever added."""

_ADD, _CONTAINS = scripts.load("add"), scripts.load("contains")
_EXPIRE: Final = scripts.load("expire", integer)
_SHORT: Final[Mapping[str, scripts.Script[Any]]] = {
    verb: scripts.load(verb + scripts.IN_BLOCKS) for verb in ("add", "contains")
}
"""Scripts of the same verbs, whose replies have the same form."""

Recovery = Callable[[Any, Refusal, Handle], Op[None]]
"""A method that deals with a script's refusal: it returns where the call should be made again."""


class CallOptions(TypedDict, total=False):
    """Options of `Stored.call`."""

    reads: bool
    replicas: bool
    again: bool
    earlier: bool
    kind: type[FilterCall[Any]]


class Stored(ABC):
    """The state under one key and what this object knows of it."""

    RECOVERY: ClassVar[Mapping[str, Recovery]] = {}
    """For each word of a script's refusal the method that deals with it; any other word is raised."""

    is_one_bitmap: bool = True
    """True if all bits of an item lie in one string, so that a copy or a segment of it holds whole items."""
    has_layers: ClassVar[bool] = False
    """True if the scripts always have to know several layers."""
    notices_loss: ClassVar[bool] = True
    """True if a script refuses where the filter is missing, so that a replica may be asked."""

    template_kind: ClassVar[type[Template]] = Template
    """The parts that all calls share which add and test items."""

    left: int = UNBOUNDED
    """New items until the capacity is reached, as far as this object knows."""
    only_read: str | None = None
    """The message for a caller who would write."""

    def __init__(self, name: str, key: bytes, wait: Wait | None) -> None:
        self.name = name
        self.key = key
        self.auxiliary = auxiliary_prefix(key)  # of the names of its other keys
        self.wait = wait
        self.under_way = UnderWay()
        self._lost: str | None = None  # the message, until the caller has dealt with it
        self._changes = 0  # how often it was opened, or reset
        self.handle: Handle | None = None

    def remember(
        self,
        identity: bytes,
        layout: Packing,
        keys: Sequence[bytes] = (),
        *,
        generation: bytes = b"",
        layers: int = 1,
        is_being_rebuilt: bool = False,
    ) -> Handle:
        """Cache the verified identity and layout.

        :param keys: the filter's key and those that every script is given behind its own.
        :param layers: how many there are in this layout.
        :param is_being_rebuilt: identity and layout are those of the filter and of its successor.
        """
        key, *extra = keys or (self.key,)
        self._changes += 1
        items = max(1, int(PROBES_A_CALL // (layout.cost * layers)))
        check, version = crc32(generation), IN_BLOCKS if isinstance(layout, Blocked) else WHOLE
        if self.has_layers or is_being_rebuilt:
            version = LAYERED
        self.handle = handle = Handle(
            identity, layout, items, key, tuple(extra), generation, check, version, is_being_rebuilt
        )
        self._lost = None
        return handle

    def forget(self) -> None:
        """Drop the handle."""
        self.handle = None

    def reset(self) -> None:
        """Drop the handle and any loss; the next call opens the filter, also one that is opening it now."""
        self.handle = self._lost = None
        self._changes += 1

    @abstractmethod
    def open(self) -> Op[Handle]:
        """Create the filter if it is missing and parameters were given; check and remember it."""

    @abstractmethod
    def take(self) -> Op[Handle]:
        """Open it anew, whether or not it was lost; other calls go on with the known handle meanwhile."""

    @abstractmethod
    def current(self) -> Op[list[Description]]:
        """Describe each layer, the newest first; a loss is noticed."""

    @abstractmethod
    def clear(self) -> Op[None]:
        """Empty the filter, whatever its generation; create a missing one."""

    @abstractmethod
    def delete(self, arguments: Arguments, keys: Sequence[bytes]) -> Op[bool]:
        """Delete the filter, whatever its generation; True if it existed."""

    def acquire(self) -> Op[Handle]:
        """Return the handle, opening the filter if this object has not."""
        return self.handle or (yield from self.open())

    def attempt(self, work: Callable[[Handle], Op[T]]) -> Op[T]:
        """Run `work(handle)`, and again with the next handle as often as `LayoutChanged` ends it."""
        while True:
            handle = self.handle or (yield from self.open())
            try:
                return (yield from work(handle))
            except LayoutChanged:
                continue

    def segmented(self, handle: Handle) -> Layout | None:
        """Return the layout of a filter to which segments of bits may be or-ed; None for other filters."""
        return handle.bitmap if self.is_one_bitmap and not handle.is_being_rebuilt else None

    def check_writable(self) -> None:
        """Raise `TypeError` if the filter is only read."""
        if self.only_read:
            raise TypeError(self.only_read)

    def script(self, script: scripts.Script[R], version: int) -> scripts.Script[R]:
        """Return a script in the version of a handle; there is a short one of some verbs only."""
        if version == LAYERED:
            return scripts.load(script.verb, script.form, layered=True)
        return _SHORT.get(script.verb, script) if version == IN_BLOCKS else script

    def template(
        self, handle: Handle, change: scripts.Script[Reply] = _ADD, *, replicas: bool = False
    ) -> Template:
        """Return the parts that all calls about a handle share.

        :param change: the script of adds, or another one that changes items as that does.
        :param replicas: a test may be answered by a replica.
        """
        change, contains = (self.script(each, handle.version) for each in (change, _CONTAINS))
        by_replica = replicas and self.notices_loss
        return self.template_kind(
            handle, change, contains, self.wait, by_replica=by_replica, ends_early=not self.is_one_bitmap
        )

    def call(
        self,
        script: scripts.Script[R],
        handle: Handle,
        arguments: Arguments,
        keys: Sequence[bytes] = (),
        *,
        reads: bool = False,
        replicas: bool = True,
        again: bool = True,
        earlier: bool = False,
        kind: type[FilterCall[R]] = FilterCall,
    ) -> FilterCall[R]:
        """Return a call of a script on the filter that `handle` names.

        :param reads: it only reads, and so waits for no replica.
        :param replicas: one that reads may be executed by a replica.
        :param again: it may be sent again where it is not known whether it was executed.
        :param earlier: it is about an earlier call, which only the whole script knows.
        """
        if not reads:
            self.check_writable()
        version = self.script(script, WHOLE if earlier and handle.version == IN_BLOCKS else handle.version)
        anywhere = reads and replicas and self.notices_loss
        wait = None if reads else self.wait
        return kind(version, handle, keys, arguments, wait, reads=anywhere, again=again)

    def run(
        self,
        script: scripts.Script[R],
        handle: Handle,
        arguments: Arguments,
        keys: Sequence[bytes] = (),
        **options: Unpack[CallOptions],
    ) -> Op[R]:
        """Run a script on the filter that `handle` names; raise what `answered` raises."""
        call: FilterCall[R] = self.call(script, handle, arguments, keys, **options)
        outcome: Reply
        try:
            outcome = yield call
        except Exception as error:
            outcome = error
        return (yield from self.answered(call, handle, outcome))

    def answered(self, call: ScriptCall[R], handle: Handle, outcome: Outcome) -> Op[R]:
        """Return what the reply says to a call that was made on the filter that `handle` names.

        :param outcome: the reply or the error of its first sending.
        :raises LayoutChanged: the filter is another one by now; the object has caught up.
        """
        try:
            return (yield from answered(call, outcome))
        except Refusal as refusal:
            met = refusal
        yield from self._recover(met, handle)
        raise LayoutChanged

    def test(self, template: Template, items: Encoded, packed: bytes) -> Op[list[bool]]:
        """Test packed items by one call; raise what `answered` raises."""
        call = template.test_of(items, packed)
        outcome: Reply
        try:
            outcome = yield call
        except Exception as error:
            outcome = error
        return (yield from self.tested(call, outcome, len(items)))

    def tested(self, call: Contains, outcome: Reply, count: int) -> Op[list[bool]]:
        """Return the answers to so many items in the outcome of a call that tests them."""
        reply = yield from self.answered(call, call.template.handle, outcome)
        return flags_of(checked(reply, count, count))

    def _recover(self, refusal: Refusal, handle: Handle) -> Op[None]:
        """Deal with a refusal by `RECOVERY`, unless the object has moved on from that handle meanwhile."""
        recovery = self.RECOVERY.get(refusal.word)
        if recovery is None:
            raise refusal
        if self.handle is handle:
            yield from recovery(self, refusal, handle)

    def expire(self, ttl: int) -> Op[None]:
        """Let everything that is stored expire in `ttl` ms."""
        yield from self.attempt(lambda handle: self.run(_EXPIRE, handle, [ttl]))

    def explained(self, refusal: Refusal) -> BloomError:
        """Return the public error for a caller who has not used the filter before."""
        if replies.is_used_by_clone(refusal):
            return refusal  # the call is made in another one
        if refusal.word == replies.MISSING:
            return FilterNotFoundError(
                f"there is no filter {self.name!r}; give capacity and error_rate to create it"
            )
        return FilterMismatchError(f"{self.name!r} holds no Bloom filter ({refusal}); use another name")


def taken(name: str) -> FilterMismatchError:
    """Return the error for a name that exists."""
    return FilterMismatchError(f"{name!r} exists already; delete it first, or use another name")
