"""Stored state with a generation: a loss is detected and reported once, as `on_lost` says."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from typing import ClassVar, Final, Generic, TypeVar

from bloomredis.arguments import OnLost
from bloomredis.errors import FilterLostError, FilterMismatchError, FilterNotFoundError
from bloomredis.protocol import forms, replies, scripts
from bloomredis.protocol.calls import Wait, call
from bloomredis.protocol.clock import next_round
from bloomredis.protocol.explanations import AGAIN
from bloomredis.protocol.replies import Refusal, Unconfirmed
from bloomredis.protocol.steps import Op
from bloomredis.stored.header import Header
from bloomredis.stored.state.base import Arguments, Recovery, Stored
from bloomredis.stored.state.handle import Handle, Link
from bloomredis.stored.state.knowledge import Record, raise_loss_since

ParametersT = TypeVar("ParametersT")
R = TypeVar("R")
T = TypeVar("T")

LOSSES: Final = {
    replies.MISSING: "{!r} has vanished (expired, evicted, flushed or deleted)",
    replies.CHANGED: "{!r} was cleared or replaced",
    replies.FOREIGN: "{!r} was overwritten with something that is no filter",
    replies.WRONG_TYPE: "{!r} was overwritten with a key of another type",
}
"""The message for each refusal that means a loss."""
_ACKNOWLEDGE: Final = scripts.load_script("acknowledge", forms.integer)
NO_TTL: Final = -1
"""The reply of PTTL for a key that never expires."""

_log = logging.getLogger("bloomredis")


class Versioned(Stored, Generic[ParametersT]):
    """Stored state with a generation, which detects eviction, expiry and replacement.

    `ParametersT` is the type of a stored filter's checked parameters.
    """

    _may_be_evicted = False  # and the caller knows

    def __init__(
        self, name: str, *, ttl: int, on_lost: OnLost, wait: Wait | None, encoding: int | None = None
    ) -> None:
        super().__init__(name, name.encode(), wait)
        self.known.recreates = on_lost == "recreate"
        self._ttl = ttl
        self.encoding = encoding

    @abstractmethod
    def _find(self, *, creates: bool) -> Op[ParametersT | None]:
        """Check and return the stored filter's parameters; None if it met a loss and has to begin again.

        :param creates: create the filter if it is missing and parameters were given.
        """

    def _find_whole(self, *, creates: bool) -> Op[ParametersT | None]:
        """Return the same, after a look at each part of the filter."""
        return self._find(creates=creates)

    def _find_acknowledged(self, *, creates: bool) -> Op[ParametersT | None]:
        """Return the same for `acknowledge`, after a missing part was made anew."""
        return self._find_whole(creates=creates)

    @abstractmethod
    def _handle_of(self, found: ParametersT) -> Handle:
        """Return a handle of the filter that was found."""

    def _is_same(self, handle: Handle, known: ParametersT) -> bool:
        """Return whether an opened filter is the one that was known, perhaps without the mark."""
        return handle.generation == self._handle_of(known).generation

    def _acknowledged(self, known: Record) -> Op[ParametersT | None]:
        """Return the stored filter if its maker acknowledged the loss of the one that a record knows.

        This only reads.  A key of the server's module cannot say it.
        """
        return None
        yield  # which makes this a generator, like its overrides

    def _mark(self, found: ParametersT) -> Op[ParametersT | None]:
        """Mark the filter that was found as acknowledged; return it, or None if another one is stored by now.

        A new filter is marked in a second step, so that a delayed copy of the first one, which may make the
        filter once more after a later loss, acknowledges nothing.
        """
        return found
        yield  # which makes this a generator, like its overrides

    def _mark_head(self, head: Header) -> Op[Header | None]:
        """Set the mark by the identity that was just read; return the header that is stored then."""
        if head.is_acknowledged:
            return head
        marked = yield from self.if_unchanged(_ACKNOWLEDGE, [self.key], [head.identity])
        return None if marked is None else head.acknowledged

    def _check_ttl(self, left: int) -> None:
        """Warn if the stored filter never expires although this object was given a `ttl`.

        :param left: the reply of PTTL, in ms.
        """
        if self._ttl and left == NO_TTL:
            _log.warning(
                "%r never expires: ttl=%s is for a filter that this object creates; expire() sets it now",
                *(self.name, f"{self._ttl / 1000:g}"),
            )

    def _warn_of_eviction(self, policy: str) -> None:
        """Warn, once, if the server may evict what this object has created by this policy."""
        if policy and not self._may_be_evicted:
            self._may_be_evicted = True
            _log.warning(
                "%r has a key of more than 1 MB on a server that evicts keys when its memory is full "
                "(maxmemory-policy %s): use a server with noeviction, or its loss will be a FilterLostError",
                *(self.name, policy),
            )

    def open(self) -> Op[Handle]:
        """Create the filter if it is missing and parameters were given; check and remember it.

        If another call of this object has opened the filter meanwhile, return that call's handle.  If that
        filter was replaced since, the next call detects the loss.
        """
        return self._open_by(partial(self._find, creates=True), stands=True)

    def existing(self) -> Op[Handle]:
        return self.handle or (yield from self._open_by(partial(self._find, creates=False), stands=True))

    def create(self) -> Op[object]:
        if self.known.now().handle is None:
            return self._open_by(partial(self._find_whole, creates=True), stands=True)
        return self._check()

    def _check(self) -> Op[Handle]:
        yield from self.or_none(self._compare())
        return (yield from self.acquire())  # if it was lost, and is made anew

    def _compare(self) -> Op[object]:
        """Compare the stored filter and each of its parts with the open one; detect a loss."""
        return self.current()

    def acknowledge(self) -> Op[bool]:
        before = self.known.now()
        knew = before.state != "unopened"  # if it has only met the loss of a part, nothing was found
        try:
            find = partial(self._find_acknowledged, creates=knew)
            handle = yield from self._open_by(find, stands=False)
        except FilterNotFoundError:
            if not self.creates:
                raise
            return False
        return knew and (before.found is None or not self._is_same(handle, before.found))

    def _take_emptied(self, found: ParametersT, since: Record) -> Op[None]:
        """Use a filter that a call has emptied; open it again if more is known than as that call began."""
        if not self.known.opened(since, self._handle_of(found), found):
            self.known.emptied()
            yield from self.open()

    def _open_by(self, find: Callable[[], Op[ParametersT | None]], *, stands: bool) -> Op[Handle]:
        """Use the filter that `find` returns, unless it returns None since something has changed.

        :param stands: raise a loss unless it was acknowledged, and return the handle of a call that has
            opened the filter meanwhile.  Otherwise acknowledge every loss: mark the filter that `find`
            returns, by its identity, and use it if nothing more is known by then.
        """
        rounds = None
        while True:
            rounds = yield from next_round(rounds, self.name)
            known = self.known.now()
            if stands and known.handle is not None:
                return known.handle
            loss = known.loss_to_raise if stands else None
            found = yield from (find() if loss is None else self._after(known, loss))
            if not stands and found is not None and self.known.now() is known:
                found = yield from self._mark(found)
            if found is not None:
                handle = self._handle_of(found)
                if self.known.opened(known, handle, found):
                    return handle

    def _after(self, known: Record, loss: FilterLostError) -> Op[ParametersT | None]:
        """Return the filter with which this object may go on after a loss; raise the loss if there is none.

        A caller is told of each loss at least once.

        :returns: None if more is known by now.
        """
        if loss.told[0]:
            found = None
            with suppress(FilterNotFoundError, FilterMismatchError):
                found = yield from self._acknowledged(known)
            if found is not None or self.known.now() is not known:
                return found
        raise copy(loss)

    def _call(
        self,
        script: scripts.Script[R],
        arguments: Arguments,
        wait: Wait | None = None,
        keys: Sequence[bytes] = (),
    ) -> Op[R]:
        """Run a script that is safe to retry; raise the public error for a refusal."""
        try:
            return (yield from call(script, keys or [self.key], arguments, wait))
        except Refusal as refusal:
            raise self.explained(refusal) from None
        except Unconfirmed as error:
            raise replies.outcome_unknown(error, self.name, AGAIN) from None

    def if_unchanged(
        self, script: scripts.Script[R], keys: Sequence[bytes], arguments: Arguments, *, again: bool = True
    ) -> Op[R | None]:
        """Run a script that compares an identity; return None if the filter has vanished or was replaced."""
        try:
            return (yield from call(script, keys, arguments, self.wait, again=again))
        except Refusal as refusal:
            if refusal.word not in (replies.CHANGED, replies.MISSING, replies.ENDED):
                raise self.explained(refusal) from None
            return None

    def _watched(self, look: Callable[[Handle], Op[T]]) -> Op[T]:
        """Return `look(handle)`, which reads the stored filter; detect a loss and repeat.

        :param look: raises a `Refusal` for another filter, as a script does, and `FilterLostError` for an
            older state of the same filter.
        """
        rounds = None
        while True:
            rounds = yield from next_round(rounds, self.name)
            handle = yield from self.existing()
            try:
                return (yield from look(handle))
            except Refusal as refusal:
                met = refusal
            except (FilterNotFoundError, FilterMismatchError, FilterLostError) as error:
                is_gone = isinstance(error, FilterNotFoundError)
                self._lose(self.loss(replies.MISSING) if is_gone else error.problem, handle.link)
                continue
            yield from self._recover(met, handle)

    def _lose(
        self, what: str, link: Link, *, is_damage: bool = False, in_part: bool = False, used: bool = True
    ) -> None:
        """Note that the filter of a record is lost: raise `FilterLostError`, or warn and return.

        :param link: of the record with which the loss was met; a later record may say more.
        :param is_damage: the stored filter is unusable and must be cleared.
        :param in_part: a key of the filter is missing, as after a RENAME or COPY of its record alone.
        :param used: this object had used the lost filter.
        """
        known = self.known.now()
        if known.link is link:
            since = " since it was first used" if used and not is_damage else ""
            first = "if its record was renamed or copied, rename it back; otherwise " if in_part else ""
            advice, command = "call clear() to start empty", "`bloomredis clear` starts empty"
            if not is_damage:
                advice = "call acknowledge() to go on with what is there now, or clear() to start empty"
                command = f"`bloomredis acknowledge` goes on with what is stored now, {command}"
            loss = FilterLostError(
                f"{what}{since}; what was added before is forgotten",
                advice=f"{first}{advice}",
                command=f"{first}{command}",
            )
            loss.is_damage = is_damage
            if self.known.lost(known, loss) and self.known.recreates:
                _log.warning("%s; going on with what is there now, or with a new, empty filter", loss.problem)
        raise_loss_since(link)

    def _recover_loss(self, refusal: Refusal, handle: Handle) -> None:
        self._lose(self.loss(refusal.word), handle.link)

    def _recover_full(self, refusal: Refusal, handle: Handle) -> Op[None]:
        if self.reaction is None or not handle.is_capped:
            raise refusal
        if self.reaction.refuses:
            raise self.reaction.error()
        yield from self.look_at_count(1)

    def loss(self, word: str) -> str:
        """Return the message for a script's refusal on a filter that was in use."""
        return LOSSES[word].format(self.name)

    def _check_count(self, count: int, before: int, handle: Handle) -> None:
        """Remember a count; raise `FilterLostError` if it is smaller than a count seen before."""
        if count < before:
            raise FilterLostError(
                f"{self.name!r} was replaced by an older copy: its count fell below {before}",
                advice="acknowledge() goes on with it",
            )
        handle.counted[0] = max(handle.counted[0], count)

    RECOVERY: ClassVar[dict[str, Recovery]] = {
        **dict.fromkeys(LOSSES, _recover_loss),
        replies.FULL: _recover_full,
    }

    def compare(self, found: dict[str, object], wanted: dict[str, object]) -> None:
        """Raise `FilterMismatchError` for the first parameter that differs from the wanted value."""
        for parameter, value in wanted.items():
            if found[parameter] != value:
                raise FilterMismatchError(
                    f"{self.name!r} holds {parameter} {found[parameter]!r}, not {value!r}",
                    advice=f"open it with {self.called}.open(), which uses the stored parameters, or use "
                    "another name",
                    command="leave the option out to use the stored parameters, or use another name",
                )
