"""A filter whose bits live in a key of the server's Bloom filter module (BF.*).

The module hashes the items and grows by itself; the scripts of `lua/module/` make calls safe to retry.  The
filter's identity is its markers (`bits.module_items`).  Each call tests them in the same atomic step, which
detects a loss.  Other programs may use BF.ADD on the same key.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeVar, Unpack, cast

from bloomredis.bits.batch import Encoded
from bloomredis.bits.module_items import (
    ADOPTED,
    FULL,
    MADE,
    Marking,
    ModuleItems,
    as_flags,
    digits_of,
    marking,
    packed,
)
from bloomredis.errors import (
    BloomError,
    FilterFullError,
    FilterMismatchError,
    FilterNotFoundError,
    ServerRefusedError,
)
from bloomredis.protocol import forms, replies, scripts
from bloomredis.protocol.calls import parts, send_command
from bloomredis.protocol.clock import next_round
from bloomredis.protocol.forms import read
from bloomredis.protocol.judging import raise_judged
from bloomredis.protocol.replies import Refusal
from bloomredis.protocol.steps import Command, Op, Outcome, Reply, Wire
from bloomredis.stored import encoding
from bloomredis.stored.encoding import OTHER
from bloomredis.stored.header import KINDS, Header
from bloomredis.stored.module.header import Link, ModuleState, read_state
from bloomredis.stored.planning import StorageOptions
from bloomredis.stored.state.base import CONTAINS, Arguments
from bloomredis.stored.state.handle import Description, Handle, LayoutChanged, ttl_seconds
from bloomredis.stored.state.item_calls import Contains, FilterCall
from bloomredis.stored.state.versioned import Versioned

R = TypeVar("R")

_RESERVE, _CLEAR = (
    scripts.load_script(verb, forms.module_state) for verb in ("module_reserve", "module_clear")
)
_MARK, _DELETE = (scripts.load_script(verb, forms.integer) for verb in ("module_mark", "module_delete"))
_OWN: Final = frozenset(("add", "contains", "expire"))
"""Verbs with a separate script for the module, whose replies have the same form as the usual script's."""

_GROWTH: Final = 2
_LOOKS: Final = 100
"""The most attempts to read a filter that other clients keep replacing."""

_USUAL_RATE: Final = 0.01
"""The error rate to assume until it is known."""


class MarkedFilter(NamedTuple):
    """A filter with markers; one of the kind `FULL` has no room for them, and its generation is its sizes."""

    state: ModuleState
    generation: bytes
    kind: bytes
    is_encoded: bool

    @property
    def marking(self) -> Marking:
        return marking(self.state.error_rate)

    @property
    def marks(self) -> int:
        """The number of markers."""
        return self.marking.total(encoded=self.is_encoded) if self.kind else 0

    @property
    def head(self) -> Header:
        """The parameters as one header; a filter of this library was reserved with room for its markers."""
        first, state = self.state.links[0], self.state
        room = state.entries - (self.marks if self.kind == MADE else 0)
        return Header(
            layout=ModuleItems.name,
            num_hashes=first.num_hashes,
            num_bits=sum(link.num_bits for link in state.links),
            capacity=room,
            error_rate=state.error_rate,
            generation=self.generation,
            count=max(0, state.items - self.marks),
        )

    def described(self, key: bytes) -> list[Description]:
        """Return a description of each bitmap, the newest first."""
        ttl, descriptions = ttl_seconds(self.state.ttl), []
        for i, link in enumerate(self.state.links):
            header = replace(self.head, num_hashes=link.num_hashes, num_bits=link.num_bits)
            if i:
                header = replace(header, capacity=link.entries, count=link.items)
            else:
                header = replace(header, count=max(0, link.items - self.marks))
            descriptions.append(Description(key, header, link.num_bits // 8, 0, ttl, has_bits=False))
        return descriptions[::-1]


def new_options(capacity: int, error_rate: float, *, encoded: bool) -> list[bytes | int | str]:
    """Return the options of BF.INSERT for a new filter."""
    return _options(capacity + marking(error_rate).total(encoded=encoded), error_rate, _GROWTH)


def _options(entries: int, error_rate: float, growth: int) -> list[bytes | int | str]:
    rest: list[bytes | int | str] = ["EXPANSION", growth] if growth else ["NONSCALING"]
    return ["CAPACITY", entries, "ERROR", repr(error_rate), *rest]


def first_link(capacity: int, error_rate: float) -> Link:
    """Return the first bitmap of a growing filter in RedisBloom, which has half the filter's rate."""
    entries, rate = capacity + marking(error_rate).total(encoded=False), error_rate / 2
    per_entry = -math.log(rate) / math.log(2) ** 2
    bits = -(-int(entries * per_entry) // 64) * 64
    return Link(bits, math.ceil(math.log(2) * per_entry), entries, rate, 0)


def options(state: ModuleState) -> list[bytes | int | str]:
    """Return the options of BF.INSERT for another filter like this one."""
    return _options(state.entries, state.error_rate, state.growth)


def answers_of(reply: Sequence[int], count: int) -> list[bool] | None:
    """Return the answers to `count` items in a reply of BF.MEXISTS; None if a marker is missing."""
    return list(map(bool, reply[:count])) if all(reply[count:]) else None


@contextmanager
def other_layout(error: FilterMismatchError) -> Iterator[Literal["module"]]:
    """Yield "module" if a key was refused because it holds no string; otherwise raise the error.

    If the server turns out to have no module, the key holds no filter of it, so the first error is raised.
    """
    met = error.__context__
    if not isinstance(met, Refusal) or met.word != replies.WRONG_TYPE:
        raise error
    try:
        yield "module"
    except ServerRefusedError as refused:
        if refused.word != replies.MODULE:
            raise
        raise error from None


class ContainsByModule(Contains):
    """A test of items and of the markers by one command of the module."""

    @property
    def commands(self) -> list[Command]:
        """The command."""
        markers = cast("ModuleItems", self.handle.layout).markers
        return [("BF.MEXISTS", self.handle.key, *self.arguments, *markers)]

    def wire(self) -> Wire | None:
        """Return the encoded command in one piece and the number of replies."""
        key, items = self.handle.key, self.arguments
        before, markers, others = _frame(key, cast("ModuleItems", self.handle.layout).markers)
        return [b"*%d\r\n%b%b%b" % (others + len(items), before, parts(items), markers)], 1

    def answer_in(self, reply: Reply) -> bool | None:
        """Return the answer to one item in a reply.

        None if a marker is missing, the reply is malformed, or the filter has no markers.
        """
        if not isinstance(reply, list) or len(reply) < 2:
            return None
        there: bool = reply[0] == 1
        return there if reply.count(True) == len(reply) - (not there) else None


@lru_cache(1024)
def _frame(key: bytes, markers: tuple[bytes, ...]) -> tuple[bytes, bytes, int]:
    """Return the encoded parts of a test before and after its items, and their number."""
    before = "BF.MEXISTS", key
    return parts(before), parts(markers), len(before) + len(markers)


class StoredModule(Versioned[MarkedFilter]):
    """A filter of the module.

    :param new: the capacity and error rate with which a missing filter is created; None if it must exist.
    """

    store = ("module",)
    is_one_bitmap = False
    called = KINDS[0]

    def __init__(
        self, name: str, *, new: tuple[int, float] | None, **options: Unpack[StorageOptions]
    ) -> None:
        super().__init__(name, **options)
        if self.wait is not None:
            self.wait = self.wait._replace(touched=self.auxiliary + b"touched")
        self._new = new
        self.creates = new is not None

    @property
    def parameters(self) -> dict[str, object]:
        """The parameters of the stored filter once it was found, before that the wanted ones."""
        head = self.head
        known = self._new if head is None else (head.capacity, head.error_rate)
        sizes = {} if known is None else {"capacity": known[0], "error_rate": known[1]}
        return {**sizes, "layout": ModuleItems.name}

    @property
    def head(self) -> Header | None:
        """The parameters of the stored filter; None until it was found."""
        found: MarkedFilter | None = self.known.now().found
        return None if found is None else found.head

    def full(self) -> FilterFullError:
        """Return the error for a filter that has reached its capacity."""
        capacity = 0 if self.head is None else self.head.capacity
        return FilterFullError(
            f"{self.name!r} is full and was made for capacity {capacity}: for more items the server's "
            "module makes it larger",
            advice="leave on_full out, so that the filter grows",
            command="the next add makes it larger",
        )

    # -- calls

    def script(self, script: scripts.Script[R], variant: scripts.Variant) -> scripts.Script[R]:
        """Return a script in the variant for filters of the module."""
        if script.verb in _OWN:
            return scripts.load_script(f"module_{script.verb}", script.form, variant=variant)
        return super().script(script, variant)

    def call(self, *arguments: Any, **options: Any) -> FilterCall[Any]:  # as the base, without `replicas`
        """Return a call of a script; no replica executes it, since a replica may lack new markers."""
        return super().call(*arguments, **{**options, "replicas": False})

    def finish_call(self, call: FilterCall[R], outcome: Outcome) -> Op[R]:
        """Return the value of the reply to a call."""
        try:
            return (yield from super().finish_call(call, outcome))
        except Exception as error:
            self._raise_understood(error)

    def new_test(self, handle: Handle, items: Encoded, packed: bytes, *, replicas: bool = False) -> Contains:
        """Return the call that tests items."""
        return ContainsByModule(self.variant(CONTAINS, handle), handle, (), items)

    def tested(self, call: Contains, outcome: Reply, count: int) -> Op[list[bool]]:
        """Return the `count` answers in the outcome of a test, which also tests the markers."""
        if isinstance(outcome, Exception):
            try:
                raise_judged(call, outcome)
            except Exception as error:
                self._raise_understood(error)
        answers = answers_of(read("BF.MEXISTS", forms.integers, outcome), count)
        if answers is None:
            yield from self._recover((yield from self._refusal()), call.handle)
            raise LayoutChanged
        if not (all(answers) or call.handle.identity):
            yield from self.current()
        return answers

    def _refusal(self) -> Op[Refusal]:
        """Return the refusal that a script would raise for a filter without these markers."""
        there = yield from send_command(("EXISTS", self.key), forms.integer)
        return Refusal(replies.CHANGED if there else replies.MISSING, "")

    def refused(self, refusal: Refusal, handle: Handle) -> Op[NoReturn]:
        """Handle the refusal of a call; explain it if the module takes no more items."""
        try:
            yield from super().refused(refusal, handle)
        except Refusal as unhandled:
            met = unhandled
        raise (self.explained(met) if met.word == replies.FULL else met) from None

    def _raise_understood(self, error: Exception) -> NoReturn:
        """Raise an error; explain it if the server has no module."""
        if "nknown" in str(error) and "ommand" in str(error):
            raise replies.without_module(self.name) from error
        raise error

    def explained(self, refusal: Refusal) -> BloomError:
        """Return the public error for a refusal."""
        if refusal.word == replies.MODULE:
            return replies.without_module(self.name)
        if refusal.word == replies.FULL:
            return FilterFullError(
                f"{self.name!r} takes no more items ({refusal.detail})",
                advice="create a larger or a growing filter",
            )
        return super().explained(refusal)

    # -- what is stored

    def _find(self, *, creates: bool) -> Op[MarkedFilter]:
        return self._look(create=creates and self.creates)

    def _find_whole(self, *, creates: bool) -> Op[MarkedFilter]:
        """Return the stored filter.

        A filter of another program gets markers, unless this object has parameters to create a filter with.
        """
        return self._look(create=creates and self.creates, adopt=not self.creates)

    def _look(self, *, create: bool = False, adopt: bool = False) -> Op[MarkedFilter]:
        """Return the stored filter; with `adopt`, give a filter of another program its markers first."""
        known = self.known.now().found
        rate = self._new[1] if self._new else known.state.error_rate if known else _USUAL_RATE
        for _ in range(_LOOKS):
            state, answers, generation = yield from self._asked(rate, create=create)
            if generation:
                return MarkedFilter(state, generation, MADE, bool(self.encoding))
            if state.error_rate != rate:
                rate = state.error_rate
                continue
            kind = marking(rate).kind_of(answers)
            if kind is not None:
                found = yield from self._identified(state, kind, answers)
                if found is not None:
                    return found
            elif not (self.creates or state.has_room(marking(rate).total(encoded=bool(self.encoding)))):
                return MarkedFilter(state, state.sizes, FULL, is_encoded=False)
            elif adopt:
                yield from self._adopt(marking(rate))
            else:
                break
        raise FilterMismatchError(
            f"{self.name!r} is a filter of the server's module without markers of this library, so "
            "its loss could not be detected",
            advice=f"{self.called}.open(client, {self.name!r}) adds them",
            command="`bloomredis create` adds them",
        )

    def _asked(self, rate: float, *, create: bool) -> Op[tuple[ModuleState, Sequence[int], bytes]]:
        """Return the state, answers that tell the generation, and the generation if the filter is new."""
        own = self.encoding or 0
        questions = packed(marking(rate).questions(own))
        arguments: Arguments = [self._ttl, b"", questions]
        if create and self._new:
            made = [*marking(rate), digits_of(own), *new_options(*self._new, encoded=bool(own))]
            arguments = [self._ttl, os.urandom(8), questions, *made]
        reply = yield from self._call(_RESERVE, arguments, self.wait if create else None)
        state = self._read(reply)
        if self._new is not None:
            self.compare({"error_rate": state.error_rate}, {"error_rate": self._new[1]})
        created, *_, answers = reply
        return state, as_flags(answers), created

    def _read(self, reply: forms.ModuleReply) -> ModuleState:
        _, ttl, info, dump, _ = reply
        try:
            return read_state(ttl, info, dump)
        except ValueError as error:
            raise FilterMismatchError(
                f"{self.name!r} cannot be used here: {error}", advice="use another name"
            ) from None

    def _identified(self, state: ModuleState, kind: bytes, answers: Sequence[int]) -> Op[MarkedFilter | None]:
        """Return the filter with its generation; None if it was replaced meanwhile."""
        marks = marking(state.error_rate)
        is_encoded, by_own = marks.encoded(answers)
        encoding.check_encoding(
            self.name, (self.encoding if by_own else OTHER) if is_encoded else 0, self.encoding
        )
        for generation in marks.generations(answers):
            there = yield from send_command(("BF.MEXISTS", self.key, *marks.of(generation)), forms.integers)
            if all(there):
                found = MarkedFilter(state, generation, kind, is_encoded)
                self.compare(
                    {"capacity": found.head.capacity}, {"capacity": self._new[0]} if self._new else {}
                )
                return found
        return None

    def _adopt(self, marks: Marking) -> Op[None]:
        """Add markers to a filter of another program; if several clients try, only one adds its markers."""
        signatures = [packed(marks.signature(kind)) for kind in (MADE, ADOPTED)]
        own = digits_of(self.encoding or 0)
        yield from self._call(_MARK, [*signatures, os.urandom(8), *marks, own], self.wait)

    def _handle_of(self, found: MarkedFilter) -> Handle:
        markers, counted = found.marking.of(found.generation) if found.kind else (), found.head.count
        layout = ModuleItems(markers)
        return self.new_handle(packed(markers), layout, generation=found.generation, counted=counted)

    def current(self) -> Op[list[Description]]:
        """Describe each bitmap of the filter, the newest first; detect a loss."""
        return self._watched(self._compared)

    def _compared(self, handle: Handle) -> Op[list[Description]]:
        counted = handle.counted[0]  # from replies before this call
        found = yield from self._look()
        if found.generation != handle.generation:
            raise Refusal(replies.CHANGED, "")
        self._check_count(found.head.count, counted, handle)
        return found.described(self.key)

    def clear(self) -> Op[None]:
        """Empty the filter and give it a new generation."""
        since = self.known.now()
        rounds = None
        while True:
            rounds = yield from next_round(rounds, self.name)
            generation = os.urandom(8)  # new in each attempt: others may have used that of the last attempt
            try:
                found = yield from self._look()
            except FilterNotFoundError:
                yield from self._open_by(partial(self._find, creates=True), stands=False)
                return
            marks, state = found.marking, found.state
            known, new = map(packed, (marks.of(found.generation), marks.of(generation)))
            own = digits_of(self.encoding or 0) if found.is_encoded else b""
            arguments: Arguments = [known, new, generation, found.kind, *marks, own]
            keys = [self.key, self.auxiliary + b"cleared"]
            reply = yield from self.if_unchanged(_CLEAR, keys, [*arguments, *options(state)])
            if reply is not None:
                cleared = MarkedFilter(self._read(reply), generation, found.kind, found.is_encoded)
                yield from self._take_emptied(cleared, since)
                return

    def delete(self, arguments: Arguments, keys: Sequence[bytes]) -> Op[bool]:
        """Delete the filter, whatever its generation; return True if it existed."""
        rounds = None
        while True:
            rounds = yield from next_round(rounds, self.name)
            try:
                found = yield from self._look()
            except FilterNotFoundError:
                return False
            identity = packed(found.marking.of(found.generation))
            every = [self.key, *keys]
            if (
                yield from self.if_unchanged(_DELETE, every, [identity, *arguments], again=bool(keys))
            ) is not None:
                return True
