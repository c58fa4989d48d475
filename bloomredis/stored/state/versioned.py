"""Stored state with a generation: a loss is detected and reported once, as `on_lost` says."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Generic, NoReturn, TypeVar

from bloomredis.arguments import OnLost
from bloomredis.errors import FilterLostError, FilterMismatchError, FilterNotFoundError
from bloomredis.protocol import forms, replies, scripts
from bloomredis.protocol.calls import Wait, call
from bloomredis.protocol.clock import next_round
from bloomredis.protocol.explanations import AGAIN
from bloomredis.protocol.replies import Refusal, Unconfirmed
from bloomredis.protocol.steps import Op
from bloomredis.stored.header import Header
from bloomredis.stored.state.base import Arguments, Stored
from bloomredis.stored.state.handle import Handle

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
    counted: int = 0
    """The largest count that was seen since the filter was opened, for a lower bound of later counts."""

    def __init__(
        self, name: str, *, ttl: int, on_lost: OnLost, wait: Wait | None, encoding: int | None = None
    ) -> None:
        super().__init__(name, name.encode(), wait)
        self._ttl = ttl
        self._on_lost = on_lost
        self._is_damaged = False  # a loss that only clear() mends
        self.encoding = encoding

    @abstractmethod
    def _find(self, *, creates: bool) -> Op[ParametersT]:
        """Check and return the stored filter's parameters.

        :param creates: create the filter if it is missing and parameters were given.
        """

    @abstractmethod
    def _accept(self, found: ParametersT) -> Handle:
        """Remember the stored filter and return its handle."""

    def _acknowledged(self) -> Op[ParametersT | None]:
        """Return the stored filter if its maker acknowledged the loss of the one that this object knew.

        This only reads.  A key of the server's module cannot say it.
        """
        return None
        yield  # which makes this a generator, like its overrides

    def _mark(self, found: ParametersT) -> Op[ParametersT]:
        """Mark the filter that was found as acknowledged; return it.  If it is lost by now, mark nothing."""
        return found
        yield  # which makes this a generator, like its overrides

    def _mark_head(self, head: Header) -> Op[Header]:
        """Set the mark by the identity that was just read; return the header that is stored then."""
        if head.is_acknowledged:
            return head
        marked = yield from self.if_unchanged(_ACKNOWLEDGE, [self.key], [head.identity])
        return head if marked is None else head.acknowledged

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

    def reopen(self, *, marks: bool | None = None) -> Op[Handle]:
        return self._reopen_by(partial(self._find, creates=True), marks=marks)

    def _reopen_by(self, find: Callable[[], Op[ParametersT]], *, marks: bool | None) -> Op[Handle]:
        if marks is None:
            marks = self._lost is not None and not self._is_damaged
        return self._open_by(find, stands=False, marks=marks)

    def _accept_or_reopen(self, found: ParametersT, since: int) -> Op[None]:
        """Remember a filter that a call has emptied; reopen it if another call has opened it since."""
        if self._changes == since:
            self._accept(found)
        else:
            self.reset()
            yield from self.reopen()

    def _open_by(
        self, find: Callable[[], Op[ParametersT]], *, stands: bool, marks: bool = False
    ) -> Op[Handle]:
        """Accept the filter that `find` returns.

        :param stands: raise a loss unless it was acknowledged, and return the handle of a call that has
            opened the filter meanwhile.  Otherwise drop the loss, and repeat `find` after such a call, since
            either may have seen the older filter.
        :param marks: acknowledge the loss for all objects.
        """
        handled = None if stands else self._lost
        rounds = None
        while True:
            rounds = yield from next_round(rounds, self.name)
            if stands and self.handle is not None:
                return self.handle
            since, lost = self._changes, self._lost
            found = yield from (find() if lost is None or lost is handled else self._after(lost))
            if marks and found is not None and self._lost is lost:
                found = yield from self._mark(found)
            if found is None or self._lost is not lost:
                continue  # another call has detected or handled a loss since, and `found` may be older
            if self._changes == since:
                return self._accept(found)

    def _after(self, lost: FilterLostError) -> Op[ParametersT | None]:
        """Return the filter with which this object may go on after a loss; raise the loss if there is none.

        A caller is told of each loss at least once.

        :returns: None if another call has handled the loss meanwhile.
        """
        if lost.is_told:
            found = None
            with suppress(FilterNotFoundError, FilterMismatchError):
                found = yield from self._acknowledged()
            if found is not None or self._lost is not lost:
                return found
        self.raise_loss(lost)

    def raise_loss(self, lost: FilterLostError) -> NoReturn:
        if lost is self._lost:  # otherwise the call was sent for an older filter
            lost.is_told = True
        super().raise_loss(lost)

    def untold(self, looking: Op[T]) -> Op[T]:
        """Run work that is not about items, or that no caller asked for: a loss stays to be told."""
        before = self._lost
        was_told = before is not None and before.is_told
        try:
            return (yield from looking)
        except FilterLostError:
            if self._lost is not None:  # if another call has told a caller meanwhile, one more is told
                self._lost.is_told = was_told and self._lost is before
            raise

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
                if self.handle is handle:  # otherwise another call has handled the loss meanwhile
                    is_gone = isinstance(error, FilterNotFoundError)
                    yield from self._notice_loss(
                        self.loss(replies.MISSING) if is_gone else error.problem, handle
                    )
                continue
            yield from self._recover(met, handle)

    def _notice_loss(self, what: str, handle: Handle) -> Op[None]:
        """Handle a loss that was detected with this handle."""
        self.report_loss(what, handle)
        yield from ()  # which makes this a generator, as in subclasses

    def report_loss(self, what: str, handle: Handle, *, damaged: bool = False) -> None:
        """Report a loss as `on_lost` says: raise `FilterLostError`, or drop the handle, once for each handle.

        :param damaged: the stored filter is unusable and must be cleared.
        """
        if self._on_lost == "raise" or handle.takes_loss():
            self._apply_on_lost(what, damaged=damaged)

    def _apply_on_lost(self, what: str, *, damaged: bool = False, used: bool = True) -> None:
        """Raise the loss, or drop the handle and log a warning, as `on_lost` says.

        :param used: this object had used the lost filter.
        """
        if self.in_flight.clears:
            self.handle = None
            return
        since = " since it was first used" if used and not damaged else ""
        lost = FilterLostError(
            f"{what}{since}; what was added before is forgotten",
            advice="call clear() to start empty"
            if damaged
            else "call reserve() to go on with what is there now, or clear() to start empty",
            command="`bloomredis clear` starts empty"
            if damaged
            else "`bloomredis reserve` continues with what is stored now, `bloomredis clear` starts empty",
        )
        if self._on_lost == "raise":
            # Set before the handle is dropped: a thread that saw neither would open the new filter.
            self._lost = lost
            self._is_damaged = damaged
            handle = self.handle
            if handle is not None:  # else another thread has met the loss, too
                handle.ends.append(lost)
            self.handle = None
            self.raise_loss(lost)
        self.handle = None
        _log.warning("%s; going on with what is there now, or with a new, empty filter", lost.problem)

    def _recover_loss(self, refusal: Refusal, handle: Handle) -> Op[None]:
        return self._notice_loss(self.loss(refusal.word), handle)

    def _recover_full(self, refusal: Refusal, handle: Handle) -> Op[None]:
        if not handle.is_capped:
            raise refusal
        self.react_to_full(handle)
        yield from ()  # which makes this a generator, like the other recoveries

    def loss(self, word: str) -> str:
        """Return the message for a script's refusal on a filter that was in use."""
        return LOSSES[word].format(self.name)

    def _check_count(self, count: int, before: int, handle: Handle) -> None:
        """Remember a count; raise `FilterLostError` if it is smaller than a count seen before."""
        if count < before:
            raise FilterLostError(
                f"{self.name!r} was replaced by an older copy: its count fell below {before}",
                advice="reserve() goes on with it",
            )
        if self.handle is handle:  # otherwise another call has opened the filter again meanwhile
            self.counted = max(self.counted, count)

    RECOVERY = dict.fromkeys(LOSSES, _recover_loss) | {replies.FULL: _recover_full}

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
