"""A filter in one key."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, NoReturn, TypeVar

from bloomredis.arguments import OnLost
from bloomredis.bits import limits
from bloomredis.errors import BloomError, FilterFullError, FilterMismatchError, FilterNotFoundError
from bloomredis.protocol import forms, replies, scripts
from bloomredis.protocol.calls import Wait
from bloomredis.protocol.clock import next_round
from bloomredis.protocol.replies import Refusal
from bloomredis.protocol.steps import Op
from bloomredis.stored import encoding, header, planning
from bloomredis.stored.header import KINDS, Header
from bloomredis.stored.state.base import Arguments
from bloomredis.stored.state.handle import Description, Handle, Layer, ttl_seconds
from bloomredis.stored.state.knowledge import Record
from bloomredis.stored.state.versioned import Versioned

R = TypeVar("R")

State = tuple[bytes, int, int]
"""The reply of describe, reserve and clear: a header, the string's length and the time to live in ms."""

_RESERVE: Final = scripts.load_script("reserve", forms.created)
_DESCRIBE, _CLEAR = (scripts.load_script(verb, forms.state) for verb in ("describe", "clear"))
_DELETE: Final = scripts.load_script("delete", forms.integer)


class StoredFilter(Versioned[Header]):
    """A filter in one key, with a header."""

    def __init__(
        self,
        name: str,
        *,
        new: Header | None,
        layout: str | None,
        ttl: int,
        on_lost: OnLost,
        wait: Wait | None,
        encoding: int | None = None,
        kind: int = header.FILTER,
    ) -> None:
        super().__init__(name, ttl=ttl, on_lost=on_lost, wait=wait, encoding=encoding)
        self._kind = kind
        self.called = KINDS[kind]
        self.is_one_bitmap = kind == header.FILTER
        self._new = replace(new, encoding=encoding) if new and encoding else new
        self.creates = new is not None
        self._wanted = planning.wanted_parameters(new, layout)

    @property
    def head(self) -> Header | None:
        """The header that was found, or else the header that a new filter would get."""
        found: Header | None = self.known.now().found
        return found or self._new

    def describe(self) -> Op[Description]:
        """Read the stored filter, whatever its generation."""
        return self.read((yield from self._call(_DESCRIBE, [])))

    def current(self) -> Op[list[Description]]:
        """Describe the filter; detect a loss."""
        return self._watched(self._compared)

    def _compared(self, handle: Handle) -> Op[list[Description]]:
        counted = handle.counted[0]  # from replies before this call
        found = yield from self.describe()
        if handle.identity != found.header.identity:
            raise Refusal(replies.CHANGED, found.header.pack().hex())
        if self._kind == header.FILTER and not self.refuses:  # else a load may take a part of its count back
            self._check_count(found.header.count, counted, handle)
        return [found]

    def recorded_layers(self, handle: Handle) -> Sequence[Layer]:
        """Return the filter as the only layer if loads must stop at its capacity."""
        if not self.refuses:
            return ()
        return [Layer(handle.key, handle.identity, handle.bitmap)]

    def look_at_count(self, added: int) -> Op[None]:
        handle, reaction = self.handle, self.reaction
        if handle is None or reaction is None or reaction.refuses or not (added or reaction.left <= 0):
            return
        reaction.passed, reaction.left = handle.generation, 1
        with suppress(BloomError):  # the next call meets the reason
            found = (yield from self.describe()).header
            if found.identity == handle.identity and found.count < found.capacity:
                reaction.passed = b""
            elif found.identity == handle.identity:
                capacity, rate = found.capacity, planning.expected_error_rate(found, found.count)
                reaction.left = max(1, capacity // 10)
                reaction.warn(
                    handle.generation,
                    rate / found.error_rate,
                    f"{self.name!r} has {found.count} items and was made for capacity {capacity}: it takes a "
                    f"new item for a known one with probability {rate:.2g}, not {found.error_rate}",
                )
        self.note_added(handle, 0)

    def full(self) -> FilterFullError:
        """Return the error for a filter that has reached its capacity."""
        capacity, rate = (0, 0.0) if self.head is None else (self.head.capacity, self.head.error_rate)
        return FilterFullError(
            f"{self.name!r} is full and was made for capacity {capacity}: with more items it errs more "
            f"often than error_rate {rate}",
            advice="to let it grow, call ScalingBloomFilter.adopt(), then use ScalingBloomFilter in all "
            "programs",
            command="to let it grow, run `bloomredis adopt`, and use --kind scaling",
        )

    def _recover_damage(self, refusal: Refusal, handle: Handle) -> NoReturn:
        raise FilterMismatchError(
            f"{self.name!r} is damaged: its string ends before its bits do",
            advice="delete the key or restore it",
        )

    def _recover_change(self, refusal: Refusal, handle: Handle) -> None:
        """Go on if only the mark differs."""
        try:
            found = header.parse(replies.unhex(refusal.detail), self._kind)
        except ValueError:
            found = None
        if found is not None and header.differ_by_mark(found.identity, handle.identity):
            marked = self._handle_of(found)
            marked.counted[0] = max(*marked.counted, *handle.counted)  # so that info() notices an older copy
            self.known.opened(self.known.now(), marked, found)
        else:
            self._recover_loss(refusal, handle)

    RECOVERY = Versioned.RECOVERY | {replies.CHANGED: _recover_change, replies.DAMAGED: _recover_damage}

    def clear(self) -> Op[None]:
        """Empty the filter and give it a new generation."""

        def emptied(head: Header) -> Arguments:
            # Each attempt has a new generation, since others may have used that of the last attempt.
            return [replace(head, generation=os.urandom(8)).acknowledged.pack()]

        since = self.known.now()
        try:
            reply = yield from self._replace(_CLEAR, emptied, ())
        except FilterNotFoundError:
            yield from self._open_by(partial(self._find, creates=True), stands=False)
        else:
            yield from self._take_emptied(self.read(reply).header, since)

    def delete(self, arguments: Arguments, keys: Sequence[bytes]) -> Op[bool]:
        """Delete the filter, whatever its generation; return True if it existed."""
        try:
            yield from self._replace(_DELETE, lambda _: arguments, keys)
        except FilterNotFoundError:
            return False
        return True

    def _replace(
        self, script: scripts.Script[R], arguments: Callable[[Header], Arguments], keys: Sequence[bytes]
    ) -> Op[R]:
        """Run a script on the stored generation; repeat if that has changed meanwhile."""
        rounds = None
        while True:
            rounds = yield from next_round(rounds, self.name)
            found = (yield from self.describe()).header
            reply = yield from self.if_unchanged(
                script,
                [self.key, *keys],
                [found.identity, *arguments(found)],
                again=bool(keys),  # the keys are those of a receipt
            )
            if reply is not None:
                return reply

    def read(self, reply: State) -> Description:
        """Return the description in a reply; `FilterMismatchError` if the filter cannot be used."""
        data, size, ttl = reply
        try:
            head = header.parse(data, self._kind)
        except ValueError as error:
            raise header.unusable(self.name, error) from None
        if not head.has_size(size):
            raise FilterMismatchError(
                f"{self.name!r} is damaged: it has {size} bytes, its header says {head.size_bytes}",
                advice="delete the key or restore it",
            )
        self.compare({field: getattr(head, field) for field in self._wanted}, self._wanted)
        encoding.check_encoding(self.name, head.encoding, self.encoding)
        return Description(self.key, head, size, limits.HEADER_BYTES, ttl_seconds(ttl))

    def _acknowledged(self, known: Record) -> Op[Header | None]:
        found = (yield from self.describe()).header
        return found if found.succeeds(known.found) else None

    def _mark(self, found: Header) -> Op[Header | None]:
        return self._mark_head(found)

    def _handle_of(self, head: Header) -> Handle:
        layout = planning.stored(head)
        return self.new_handle(head.identity, layout, generation=head.generation, counted=head.count)

    def _find(self, *, creates: bool) -> Op[Header]:
        if self._new is None or not creates:
            return (yield from self.describe()).header
        template = replace(self._new, generation=os.urandom(8)).pack()
        reply, policy = yield from self._call(_RESERVE, [template, self._ttl], self.wait)
        self._check_ttl(reply[-1])
        self._warn_of_eviction(policy)
        return self.read(reply).header
