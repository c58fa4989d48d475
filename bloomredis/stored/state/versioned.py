"""Stored state with a generation: a loss is noticed, once, and `on_lost` decides what comes of it."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Final, Generic, TypeVar

from bloomredis.arguments import OnLost
from bloomredis.errors import FilterLostError, FilterMismatchError, FilterNotFoundError, OutcomeUnknownError
from bloomredis.protocol import replies, scripts
from bloomredis.protocol.calls import Wait, call
from bloomredis.protocol.replies import Refusal, Unconfirmed
from bloomredis.protocol.steps import Op
from bloomredis.stored.state.base import Arguments, Stored
from bloomredis.stored.state.handle import Handle

Found = TypeVar("Found")
R = TypeVar("R")
T = TypeVar("T")

_LOSSES: Final = {
    replies.MISSING: "{!r} has vanished (expired, evicted, flushed or deleted)",
    replies.CHANGED: "{!r} was cleared or replaced",
    replies.FOREIGN: "{!r} was overwritten with something that is no filter",
    replies.WRONG_TYPE: "{!r} was overwritten with a key of another type",
}
NO_TTL: Final = -1
"""The reply of PTTL for a key that never expires."""

_log = logging.getLogger("bloomredis")


class Versioned(Stored, Generic[Found]):
    """Stored state with a generation: eviction, expiry and replacement are detected.

    `Found` is what is known of a filter that was found.
    """

    def __init__(
        self, name: str, *, ttl: int, on_lost: OnLost, wait: Wait | None, encoding: int | None = None
    ) -> None:
        super().__init__(name, name.encode(), wait)
        self._ttl = ttl
        self._on_lost = on_lost
        self.encoding = encoding

    @property
    @abstractmethod
    def called(self) -> str:
        """Name of the public class."""

    @abstractmethod
    def _find(self) -> Op[Found]:
        """Create the filter if it is missing and parameters were given; return what is stored, checked."""

    @abstractmethod
    def _accept(self, found: Found) -> Handle:
        """Remember what is stored."""

    def _check_ttl(self, left: int) -> None:
        """Warn if what is stored never expires though this object would have made it expire.

        :param left: ms, as PTTL replies.
        """
        if self._ttl and left == NO_TTL:
            _log.warning(
                "%r never expires: ttl=%s is for a filter that this object creates; expire() sets it now",
                *(self.name, f"{self._ttl / 1000:g}"),
            )

    def open(self) -> Op[Handle]:
        """Create the filter if it is missing and parameters were given; check and remember it.

        What another call of this object has opened meanwhile stands: if it is another filter, that is a loss.
        """
        return self._open_by(self._find, stands=True)

    def take(self) -> Op[Handle]:
        return self._open_by(self._find, stands=False)

    def _go_on_with(self, found: Found, since: int) -> Op[None]:
        """Remember the filter as a call has emptied it; look again if another call has opened it since."""
        if self._changes == since:
            self._accept(found)
        else:
            self.reset()
            yield from self.take()

    def _open_by(self, find: Callable[[], Op[Found]], *, stands: bool) -> Op[Handle]:
        """Accept what `find` returns.

        :param stands: a loss is raised, and what another call has opened meanwhile stands.  Else either may
            have seen the older filter: it is asked again.
        """
        if not stands:
            self._lost = None
        while True:
            self._check_lost()
            since = self._changes
            found = yield from find()
            self._check_lost()  # it may have been noticed since, and what was read be older
            if self._changes == since:
                return self._accept(found)
            if stands and self.handle is not None:
                return self.handle

    def _call(
        self,
        script: scripts.Script[R],
        arguments: Arguments,
        wait: Wait | None = None,
        keys: Sequence[bytes] = (),
    ) -> Op[R]:
        """Run a script that may be sent again; a refusal is explained as to a new caller."""
        try:
            return (yield from call(script, keys or [self.key], arguments, wait))
        except Refusal as refusal:
            raise self.explained(refusal) from refusal
        except Unconfirmed as error:
            raise OutcomeUnknownError(str(error)) from None

    def _as_known(
        self, script: scripts.Script[R], keys: Sequence[bytes], arguments: Arguments, *, again: bool = True
    ) -> Op[R | None]:
        """Run a script that compares an identity; None if another generation is stored by now, or nothing."""
        try:
            return (yield from call(script, keys, arguments, self.wait, again=again))
        except Refusal as refusal:
            if refusal.word not in (replies.CHANGED, replies.MISSING, replies.ENDED):
                raise self.explained(refusal) from refusal
            return None

    def _watched(self, look: Callable[[Handle], Op[T]]) -> Op[T]:
        """Look at what is stored, beside a known handle; a loss is noticed.

        :param look: raises a `Refusal` for another filter, as a script does, and `FilterLostError` for an
            older state of this one.
        """
        while True:
            handle = yield from self.acquire()
            try:
                return (yield from look(handle))
            except Refusal as refusal:
                met = refusal
            except (FilterNotFoundError, FilterMismatchError, FilterLostError) as error:
                if self.handle is handle:  # else another call has dealt with it meanwhile
                    yield from self._reopen(str(error), handle)
                continue
            yield from self._recover(met, handle)

    def _reopen(self, what: str, handle: Handle) -> Op[None]:
        """Notice a loss, once a handle."""
        self.lose(what, handle)
        yield from ()  # a generator, as in other kinds

    def _check_lost(self) -> None:
        if self._lost and self.under_way.told_by != get_ident():
            raise FilterLostError(self._lost)

    def lose(self, what: str, handle: Handle, *, damaged: bool = False) -> None:
        """Notice a loss, once a handle: raise `FilterLostError` or forget the handle, as `on_lost` says.

        :param damaged: what is there now is of no use.
        """
        if next(handle.losses) == 0:
            self._tell(what, damaged=damaged)

    def _tell(self, what: str, *, damaged: bool = False) -> None:
        if self.under_way.emptied_by:
            self.handle = None
            return
        since = "" if damaged else " since this object first used it"
        message = f"{what}{since}; what was added before is forgotten"
        # Noted before the handle is dropped: a thread that finds neither would go on with what is there now.
        if self._on_lost == "raise":
            way_out = "Call" if damaged else "Call reserve() to go on with what is there now, or"
            self._lost = lost = f"{message}. {way_out} clear() to start empty"
            self.handle = None
            raise FilterLostError(lost)
        if callable(self._on_lost):
            self.under_way.told_by = get_ident()
            self._lost = message  # who else uses it meanwhile is refused
            self.handle = None
            try:
                self._on_lost(FilterLostError(message))
            except BaseException:
                self.handle, self._lost = None, message  # until the caller deals with it
                raise
            finally:
                self.under_way.told_by = 0
            self._lost = None
        else:
            self.handle = None
        _log.warning("%s; going on with what is there now, or a new one", message)

    def _recover_loss(self, refusal: Refusal, handle: Handle) -> Op[None]:
        return self._reopen(self.loss(refusal.word), handle)

    def loss(self, word: str) -> str:
        """Say what a script's refusal means for a filter that was in use."""
        return _LOSSES[word].format(self.name)

    def older(self, counted: int) -> str:
        """Say what a count means that is smaller than one that was seen."""
        return f"{self.name!r} was replaced by an older copy: it had counted {counted} items"

    RECOVERY = dict.fromkeys(_LOSSES, _recover_loss)

    def compare(self, found: dict[str, object], wanted: dict[str, object]) -> None:
        """Raise `FilterMismatchError` for the first parameter that is not as wanted."""
        for parameter, value in wanted.items():
            if found[parameter] != value:
                raise FilterMismatchError(
                    f"{self.name!r} holds {parameter} {found[parameter]!r}, not {value!r}; open it with "
                    f"{self.called}.open(), which takes what is stored, or use another name"
                )
