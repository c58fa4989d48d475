"""Stored state: the filter under a key, compared with the filter that this object knows.

Every script call carries the identity that this object knows.  So the first call after a loss detects the
loss before it touches anything.  `knowledge` has the states of an object and the events that change them.

A filter that somebody made on purpose after a loss is *marked* in its header: by `clear()`, `restore` and
`acknowledge()`.  An object that has raised a loss goes on with a marked filter that was made later than the
one that it knew.

The table `RECOVERY` of each class says how it handles a script's refusal.  MISSING, CHANGED, FOREIGN and
WRONGTYPE mean a loss.  CHANGED and STALE are no loss if another client has only begun a layer: the object
then continues with the filter's new state.  It also continues if a layer is full (FULL), or if all
layers have ended (ENDED).  If a layer has vanished (DAMAGED), the filter is lost, and an empty filter
replaces it when it is opened again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, NoReturn, TypedDict, TypeVar, Unpack, cast
from zlib import crc32

from bloomredis.bits.batch import Encoded
from bloomredis.bits.blocked import FEWEST_OF_NUMPY, Blocked
from bloomredis.bits.classic import Counting
from bloomredis.bits.layered import Layered
from bloomredis.bits.layout import Layout, Packing
from bloomredis.errors import BloomError, FilterExistsError, FilterMismatchError, FilterNotFoundError
from bloomredis.protocol import replies, scripts
from bloomredis.protocol.calls import Wait, finish_call
from bloomredis.protocol.clock import next_round
from bloomredis.protocol.forms import data, integer
from bloomredis.protocol.keys import auxiliary_prefix
from bloomredis.protocol.replies import Refusal, checked, flags_of
from bloomredis.protocol.steps import Op, Outcome, Part, Reply
from bloomredis.stored.header import differ_by_mark
from bloomredis.stored.state.handle import (
    IN_BLOCKS,
    Description,
    Handle,
    Layer,
    LayoutChanged,
    Link,
)
from bloomredis.stored.state.item_calls import Contains, FilterCall
from bloomredis.stored.state.knowledge import Knowledge, raise_loss_since
from bloomredis.stored.state.reaction import Reaction

R = TypeVar("R")
T = TypeVar("T")
Arguments = Sequence[Part]

PROBES_A_CALL: Final = 3000
"""The most probes of one script: 2 ms on the slowest server measured (0.67 us each, Redis 7.0)."""

CONTAINS: Final = scripts.load_script("contains")
_READ_BLOCKS: Final = scripts.load_script("read_blocks", data)
_EXPIRE: Final = scripts.load_script("expire", integer)


def _cells(layout: Packing) -> str:
    """Return the kind of a layout's cells: a file of lua/pieces."""
    newest = layout.layers[0] if isinstance(layout, Layered) else layout
    return "blocks" if isinstance(newest, Blocked) else "counters" if isinstance(newest, Counting) else "bits"


Recovery = Callable[[Any, Refusal, Handle], Op[None] | None]
"""A method that handles a script's refusal: it returns if the call should be repeated, else it raises.

Only one that makes calls is an operation.
"""


class CallOptions(TypedDict, total=False):
    """Options of `Stored.call`."""

    reads: bool
    replicas: bool
    again: bool
    unlimited: bool


class Stored(ABC):
    """The state under one key, and this object's knowledge of it."""

    RECOVERY: ClassVar[dict[str, Recovery]] = {}
    """The method that handles each word of a script's refusal; a refusal with another word is raised."""

    is_one_bitmap: bool = True
    """True if the filter is one bitmap in one string: segments of bits can then be OR-ed into it."""
    store: ClassVar[scripts.Variant] = ("one",)
    """The folders of lua/pieces for the filter's store."""
    has_layers: ClassVar[bool] = False
    """True if the scripts always handle several layers."""
    notices_loss: ClassVar[bool] = True
    """True if scripts detect that the filter is missing; only then may a replica execute them."""

    called: str = "BloomFilter"
    """The name of the public class."""
    creates: bool = False
    """True if the object has the parameters to create a missing filter."""
    only_read: str | None = None
    """The message for a caller who tries to write to a read-only filter."""
    reaction: Reaction | None = None
    """The reaction of this object to a full filter; None if the filter has no limit."""

    def __init__(self, name: str, key: bytes, wait: Wait | None) -> None:
        self.name = name
        self.key = key
        self.auxiliary = auxiliary_prefix(key)  # the prefix of its other keys
        self.wait = wait
        self.known = Knowledge()

    @property
    def handle(self) -> Handle | None:
        """The handle to make a call with; None if the filter must be opened first."""
        record = self.known.seen
        return (self.known.now() if record.link.next else record).handle

    def generation(self) -> bytes | None:
        """Return the generation that this object knows, b"" for a filter without one; None if not open."""
        handle = self.handle
        return None if handle is None else handle.generation

    def version(self) -> bytes:
        """Return bytes that differ as soon as items were lost; empty for a filter without a generation.

        The filter must be open.
        """
        return self.generation() or b""

    @property
    def refuses(self) -> bool:
        """A new item is refused if the filter has reached its capacity."""
        return self.reaction is not None and self.reaction.refuses

    def new_handle(
        self,
        identity: bytes,
        layout: Packing,
        keys: Sequence[bytes] = (),
        *,
        generation: bytes = b"",
        layers: int = 1,
        counted: int = 0,
        link: Link | None = None,
    ) -> Handle:
        """Return the handle of a verified filter.

        :param keys: the filter's key, then the keys that every script gets after its own.
        :param layers: the number of layers in this layout.
        :param counted: the number of items that were counted.
        :param link: that of the whole filter, for a shard.
        """
        key, *extra = keys or (self.key,)
        items = max(1, int(PROBES_A_CALL // (layout.cost * layers)))
        check, variant = crc32(generation), (*self.store, _cells(layout))
        if self.reaction is not None and self.reaction.limits(generation):
            variant = (scripts.CAPPED, *variant)
        fields = identity, layout, items, key, tuple(extra), generation, check, variant, self.name, [counted]
        return Handle(*fields, link or Link())

    def use(self, handle: Handle) -> Handle:
        """Make the next calls with a handle, whatever is known; return it."""
        while not self.known.opened(self.known.now(), handle):
            pass
        return handle

    @abstractmethod
    def open(self) -> Op[Handle]:
        """Create the filter if it is missing and parameters were given; check and remember it."""

    @abstractmethod
    def create(self) -> Op[object]:
        """Create the filter, or check the stored one and each of its parts.

        :raises FilterLostError: the filter that this object knew is lost, or a part is missing.
        """

    @abstractmethod
    def acknowledge(self) -> Op[bool]:
        """Accept a loss, for all objects, which go on with what is stored; True if this one knew another.

        If nothing is stored, the filter is made only if this object knew one: otherwise the answer is False.

        :raises FilterNotFoundError: there is no filter, and this object has no parameters to create it.
        :raises FilterLostError: only clear() helps.
        """

    @abstractmethod
    def current(self) -> Op[list[Description]]:
        """Describe each layer, the newest first; detect a loss."""

    @abstractmethod
    def clear(self) -> Op[None]:
        """Empty the filter, whatever its generation; create it if it is missing."""

    @abstractmethod
    def delete(self, arguments: Arguments, keys: Sequence[bytes]) -> Op[bool]:
        """Delete the filter, whatever its generation; return True if it existed."""

    def acquire(self) -> Op[Handle]:
        """Return the handle; open the filter if this object has not opened it."""
        return self.handle or (yield from self.open())

    def existing(self) -> Op[Handle]:
        """Return the same, but never create the filter.

        :raises FilterNotFoundError: there is no filter.
        """
        return self.acquire()  # a missing bitmap of another system is an empty filter

    def find(self) -> Op[Handle | None]:
        """Return the same; None if there is no filter, but this object could create it."""
        return self.or_none(self.existing())

    def or_none(self, reading: Op[T]) -> Op[T | None]:
        """Return what an operation returns; None if it finds no filter, but this object could create it."""
        try:
            return (yield from reading)
        except FilterNotFoundError:
            if not self.creates:
                raise
            return None

    def attempt(
        self, work: Callable[[Handle], Op[T]], acquire: Callable[[], Op[Handle]] | None = None
    ) -> Op[T]:
        """Run `work(handle)`; repeat it with the new handle when it raises `LayoutChanged`.

        :param acquire: `existing` for work that only reads.
        """
        rounds = None
        while True:
            handle = yield from (acquire or self.acquire)()
            try:
                return (yield from work(handle))
            except LayoutChanged:
                rounds = yield from next_round(rounds, self.name, len(handle.extra))

    def segmented(self, handle: Handle) -> Layout | None:
        """Return the layout of the bitmap into which segments may be OR-ed; None if there is none."""
        return handle.bitmap if self.is_one_bitmap else None

    def recorded_layers(self, handle: Handle) -> Sequence[Layer]:
        """Return the recorded layers, the newest first; an empty sequence for a filter without a record."""
        return ()

    def look_at_count(self, added: int) -> Op[None]:
        """Read the count if it is time to, and react if the filter has reached its capacity.

        :param added: the number of items that were added without a limit and not told to `note_added`.
        """
        yield from ()

    def check_writable(self) -> None:
        """Raise `TypeError` if the filter is read-only."""
        if self.only_read:
            raise TypeError(self.only_read)

    def script(self, script: scripts.Script[R], variant: scripts.Variant) -> scripts.Script[R]:
        """Return a script in the variant of a handle."""
        return scripts.load_script(script.verb, script.form, variant=variant)

    def variant(self, script: scripts.Script[R], handle: Handle) -> scripts.Script[R]:
        """Return a script in the variant of a handle."""
        known = script.verb, script.form
        found: scripts.Script[R] | None = handle.scripts.get(known)
        if found is None:
            found = handle.scripts[known] = self.script(script, handle.script_variant)
        return found

    def unlimited(self, script: scripts.Script[R], handle: Handle) -> scripts.Script[R]:
        """Return a script in the variant that may pass the filter's capacity."""
        if handle.is_capped:
            return self.script(script, handle.script_variant[1:])
        return self.variant(script, handle)

    def note_added(self, handle: Handle, added: int) -> None:
        """Note that a call adds items without a limit; make the next ones with a limit if it is time to."""
        reaction, known = self.reaction, self.known.now()
        if reaction is not None:
            reaction.left -= added
            if known.handle is handle and reaction.limits(handle.generation) != handle.is_capped:
                same = self.new_handle(handle.identity, handle.layout, generation=handle.generation)
                same.counted[:] = handle.counted
                self.known.opened(known, same, known.found)

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
        unlimited: bool = False,
    ) -> FilterCall[R]:
        """Return a call of a script on the filter that `handle` names.

        :param reads: the call only reads, so it waits for no replica.
        :param replicas: a replica may execute the call if it only reads.
        :param again: the call may be retried after a lost reply.
        :param unlimited: the call may pass the filter's capacity, whatever the object's reaction to that.
        """
        if self.only_read and not reads:
            self.check_writable()
        anywhere = reads and replicas and self.notices_loss
        wait = None if reads else self.wait
        if unlimited:
            own = self.unlimited(script, handle)
        else:
            own = handle.scripts.get((script.verb, script.form)) or self.variant(script, handle)
        return FilterCall(own, handle, keys, arguments, wait, reads=anywhere, again=again)

    def run(
        self,
        script: scripts.Script[R],
        handle: Handle,
        arguments: Arguments,
        keys: Sequence[bytes] = (),
        **options: Unpack[CallOptions],
    ) -> Op[R]:
        """Run a script on the filter that `handle` names; raise the same errors as `finish_call`.

        If the filter was only marked meanwhile, the call is repeated.
        """
        call: FilterCall[R] = self.call(script, handle, arguments, keys, **options)
        try:
            return call.value_of((yield call))
        except Exception as error:
            failed = error
        try:
            return (yield from self.finish_call(call, failed))
        except LayoutChanged:
            now = self.handle
            if now is None or not differ_by_mark(handle.identity, now.identity):
                raise
        return (yield from self.run(script, now, arguments, keys, **options))

    def finish_call(self, call: FilterCall[R], outcome: Outcome) -> Op[R]:
        """Return the value of the reply to a call; handle a refusal.

        :param outcome: the reply or error of the first attempt.
        :raises LayoutChanged: the stored filter changed; this object knows the new one.
        """
        try:
            return (yield from finish_call(call, outcome))
        except Refusal as refusal:
            met = refusal
        return (yield from self.refused(met, call.handle))

    def refused(self, refusal: Refusal, handle: Handle) -> Op[NoReturn]:
        """Handle the refusal of a call on the filter that `handle` names; raise `LayoutChanged` to go on."""
        yield from self._recover(refusal, handle)
        raise LayoutChanged

    def new_test(self, handle: Handle, items: Encoded, packed: bytes, *, replicas: bool = False) -> Contains:
        """Return the call that tests packed items.

        :param replicas: a replica may execute it.
        """
        reads = replicas and self.notices_loss
        return Contains(self.variant(CONTAINS, handle), handle, (), (packed,), reads=reads)

    def tested(self, call: Contains, outcome: Reply, count: int) -> Op[list[bool]]:
        """Return the `count` answers in the outcome of a test; raise the same errors as `finish_call`."""
        reply = yield from self.finish_call(call, outcome)
        return flags_of(checked(reply, count, count))

    def test(
        self, handle: Handle, items: Encoded, packed: bytes, *, replicas: bool = False
    ) -> Op[list[bool]]:
        """Test packed items by one call; raise the same errors as `finish_call`."""
        if len(items) >= FEWEST_OF_NUMPY and handle.script_variant in IN_BLOCKS:
            layout = cast("Blocked", handle.layout)
            numbers = layout.numbers_in(packed)
            blocks = yield from self.run(_READ_BLOCKS, handle, [numbers], reads=True, replicas=replicas)
            answers = layout.present_in(packed, blocks)
            if answers is not None:  # else the script detects the reason
                return answers
        call = self.new_test(handle, items, packed, replicas=replicas)
        outcome: Reply
        try:
            outcome = yield call
        except Exception as error:
            outcome = error
        return (yield from self.tested(call, outcome, len(items)))

    def _recover(self, refusal: Refusal, handle: Handle) -> Op[None]:
        """Handle a refusal by `RECOVERY`, unless more is known by now than when the call was made."""
        recovery = self.RECOVERY.get(refusal.word)
        if recovery is None:
            raise refusal
        if self.known.now().link is handle.link:
            yield from recovery(self, refusal, handle) or ()
        else:
            raise_loss_since(handle.link)

    def expire(self, ttl: int) -> Op[None]:
        """Let all keys of the filter expire in `ttl` ms."""
        yield from self.attempt(lambda handle: self.run(_EXPIRE, handle, [ttl]))

    def explained(self, refusal: Refusal) -> BloomError:
        """Return the public error for a caller who has not used the filter before."""
        if replies.is_used_by_clone(refusal):
            return refusal  # `in_session` repeats the call in another session
        if refusal.word == replies.MISSING:
            return FilterNotFoundError(
                f"there is no filter {self.name!r}",
                advice="add() or create() creates it"
                if self.creates
                else f"give capacity= and error_rate= to {self.called}() to create it",
                command="bloomredis create makes one, bloomredis list shows the others",
            )
        return FilterMismatchError(
            f"{self.name!r} holds no Bloom filter ({refusal.detail})",
            advice="use another name; for a bitmap of another system, give its layout= (bloomredis.compat)",
            command="use another name; for a bitmap of another system, give its --layout",
        )


def taken(name: str) -> FilterExistsError:
    """Return the error for a name that is in use."""
    return FilterExistsError(f"{name!r} exists already", advice="delete it first, or use another name")
