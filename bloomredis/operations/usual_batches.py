"""Prepared calls with several items: each command, and the operation that may have to take over (`usual`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bloomredis.bits.batch import Encoded
from bloomredis.operations.outcomes import Answers
from bloomredis.protocol import clock
from bloomredis.protocol.receipts import RECEIPT_SECONDS, Lane
from bloomredis.protocol.replies import Reply, flags_of, is_answer
from bloomredis.protocol.steps import Command, Op
from bloomredis.stored.handle import Handle

if TYPE_CHECKING:
    from bloomredis.operations.usual import Usual


class UsualBatch(NamedTuple):
    """A prepared add of several items in one script: as `UsualAdd`."""

    command: Command
    lane: Lane
    usual: Usual
    handle: Handle
    items: Encoded
    source: Sequence[Any]
    sent: float

    def operation(self) -> Op[list[bool]]:
        """Return the operation whose first step is the command, which is sent now."""
        return self.usual.filter.membership.add(self.items, self.source, self)

    def answers(self, reply: Reply) -> Answers | None:
        """Return the answers in a reply; None if the operation has to see it."""
        count = len(self.items)
        if not is_answer(reply, count, count) or clock.now() - self.sent > RECEIPT_SECONDS:
            return None
        flags = flags_of(reply)
        self.usual.added(self, sum(flags))
        items, keep, generation = self.items, self.usual.filter.ledger.keep, self.handle.generation
        return Answers(lambda i, answer: keep(items[i], generation, answer=answer), flags)


class UsualTests(NamedTuple):
    """A prepared test of several items in one script."""

    command: Command
    usual: Usual
    handle: Handle
    items: Encoded

    def operation(self) -> Op[list[bool]]:
        """Return the operation whose first step is the command."""
        return self.usual.filter.membership.test(self.items, self.handle)

    def answers(self, reply: Reply) -> list[bool] | None:
        """Return the answers in a reply; None if the operation has to see it."""
        return flags_of(reply) if is_answer(reply, len(self.items), len(self.items)) else None
