"""Holes that have been mended, and can be opened again: the checker has to find them.

Each takes one safeguard out of the library in a process of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha1
from typing import Any, Final

from bloomredis.errors import ServerRefusedError
from bloomredis.operations import membership, outcomes
from bloomredis.operations.claims import Claims
from bloomredis.protocol import scripts
from bloomredis.protocol.ledger import Ledger
from bloomredis.protocol.receipts import Lane, Lanes
from tests.history.holes_of_many import HOLES_OF_MANY

_RECALL: Final = "local function recall(receipt, call)\n"


def _lanes_survive_a_fork() -> None:
    """A forked child goes on in the lanes of its parent."""
    renew = Lanes.renew

    def once(self: Lanes) -> None:
        if not hasattr(self, "free"):
            renew(self)

    Lanes.renew = once  # type: ignore[method-assign]  # that is the hole


def _receipts_answer_other_calls() -> None:
    """A receipt is found by the number of the call alone."""
    lane: Any = Lane
    next_call = lane.next_call
    lane.next_call = lambda self, _: next_call(self, 0)


def _lanes_are_not_bound() -> None:
    """Both: lanes as they were at first."""
    _lanes_survive_a_fork()
    _receipts_answer_other_calls()


def _a_refusal_proves_that_nothing_was_done() -> None:
    """A call that was refused is taken for not executed."""
    original = outcomes.is_not_executed

    def is_not_executed(error: BaseException) -> bool:
        return isinstance(error, ServerRefusedError) or original(error)

    membership.is_not_executed = is_not_executed  # type: ignore[attr-defined]


def _answers_are_not_kept() -> None:
    """An answer that came when nobody was there to receive it is dropped."""
    outcomes.Answers.keep = lambda *_: None  # type: ignore[method-assign]
    membership_of: Any = Ledger
    membership_of.keep = lambda *_, **__: None


def _only_batches_keep_nothing() -> None:
    """The same in a batch whose call was shared."""
    outcomes.Answers.keep = lambda *_: None  # type: ignore[method-assign]


def _pending_answers_survive_the_filter() -> None:
    """What is pending is answered for another generation too."""
    ledger: Any = Ledger
    add, keep, find, taking, cut = ledger.add, ledger.keep, ledger.find, ledger.taking, ledger.cut
    ledger.add = lambda self, items, lane, call, _, *rest, **late: add(
        self, items, lane, call, b"", *rest, **late
    )
    ledger.keep = lambda self, item, _, *, answer: keep(self, item, b"", answer=answer)
    ledger.find = lambda self, item, _: find(self, item, b"")
    ledger.taking = lambda self, item, _, token: taking(self, item, b"", token)
    ledger.cut = lambda self, items, start, stop, most, _: cut(self, items, start, stop, most, b"")


def _nothing_is_pending() -> None:
    """The ledger forgets what is owed."""
    ledger: Any = Ledger
    ledger.find = lambda *_: None


def _receipts_are_ignored() -> None:
    """A call that is sent again is executed again."""
    for verb in ("add", "remove", "commit"):
        script = scripts.load(verb)
        text = script.text.replace(_RECALL, f"{_RECALL}if true then return nil, false end\n")
        if text == script.text:
            raise RuntimeError(f"{verb} finds no receipt in another way by now")
        object.__setattr__(script, "text", text)
        object.__setattr__(script, "sha", sha1(text.encode(), usedforsecurity=False).hexdigest())


def _claims_are_not_pending() -> None:
    """A claim without an answer is forgotten by its object, and so is one that did not reach its caller."""

    class Forgetful(dict[bytes, bytes]):
        def pop(self, *_: Any) -> bytes:
            return b""

    def renew(self: Claims) -> None:
        self._pending = Forgetful()

    Claims.renew = renew  # type: ignore[method-assign]


HOLES: Final[dict[str, Callable[[], None]]] = {
    "lanes-survive-fork": _lanes_survive_a_fork,
    "receipts-of-others": _receipts_answer_other_calls,
    "lanes-not-bound": _lanes_are_not_bound,
    "refusal-proves": _a_refusal_proves_that_nothing_was_done,
    "answers-not-kept": _answers_are_not_kept,
    "batches-not-kept": _only_batches_keep_nothing,
    "generations-ignored": _pending_answers_survive_the_filter,
    "nothing-pending": _nothing_is_pending,
    "receipts-ignored": _receipts_are_ignored,
    "claims-not-pending": _claims_are_not_pending,
    **HOLES_OF_MANY,
}


def open_holes(names: Iterable[str]) -> None:
    """Open some in this process."""
    for name in names:
        HOLES[name]()
