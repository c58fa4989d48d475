"""Calls that claim items and commit claims; one script call can merge several of them."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain
from typing import Final, Self

from bloomredis.protocol import replies
from bloomredis.protocol.merging import Mergeable
from bloomredis.protocol.replies import Refusal, claims_of
from bloomredis.protocol.steps import Part, Reply
from bloomredis.stored.state.item_calls import FilterCall

OWNER_BYTES: Final = 16

MOST_CLAIMS: Final = 200
"""The most claims in one script; each takes some ten commands."""

_COMMITS: Final = re.compile(r"[012-]+")


class _ClaimsCall(FilterCall[Reply], Mergeable):
    """A call about claims: its keys begin with the claims' keys, its arguments with the packed items."""

    @property
    def group(self) -> Hashable:
        """The value that all calls of a group share; None for a call that waits for replicas."""
        if self.wait is not None:
            return None
        return self.script.sha, id(self.handle), self.again, self.server, *self._shared_arguments

    @property
    def _shared_arguments(self) -> Sequence[Hashable]:
        """The arguments that all claims of a merged call must share."""
        return ()

    @property
    def names(self) -> Sequence[bytes]:
        """The keys of the claims."""
        return self.keys

    @property
    def most(self) -> int:
        """The limit of claims in one script."""
        return min(MOST_CLAIMS, self.handle.items)

    def _made(self, keys: Sequence[bytes], arguments: Sequence[Part]) -> Self:
        made = type(self)(self.script, self.handle, keys, arguments, self.wait, again=self.again)
        made.server = self.server
        return made

    def to(self, server: int) -> Self:
        """Return the same call for one of several servers, which can be merged with others."""
        call = self._made(self.keys, self.arguments)
        call.server, call.stands_for = (server, *self.server), (self,)
        return call


class ClaimCall(_ClaimsCall):
    """A call that claims items; its arguments are the packed items, the lease and the owners.

    The owners to replace follow, if there are any.
    """

    @property
    def _shared_arguments(self) -> Sequence[Hashable]:
        return self.arguments[1], len(self.arguments)

    def joined(self, calls: Sequence[Self]) -> Self:
        """Return one call that makes all these claims."""
        packed, leases, *owners = zip(*[each.arguments for each in calls], strict=True)
        keys = list(chain.from_iterable(each.keys for each in calls))
        return self._made(keys, [b"".join(packed), leases[0], *map(b"".join, owners)])

    def split(self, reply: Reply, calls: Sequence[Self]) -> Iterator[str | Refusal]:
        """Yield the reply to each of the calls."""
        answers, left = claims_of(reply, len(self.keys), is_capped=self.handle.is_capped)
        busy = iter(left)
        for call in calls:
            own, answers = answers[: len(call.keys)], answers[len(call.keys) :]
            if own:
                yield " ".join([own, *(next(busy) for answer in own if answer == "b")])
            else:
                yield _full()


class CommitCall(_ClaimsCall):
    """A call that commits claims; its arguments are the packed items and the owners.

    If the commits have sessions, the keys of their receipts follow the keys of the claims, and the names of
    their calls follow the owners.
    """

    @property
    def names(self) -> Sequence[bytes]:
        """The keys of the claims."""
        numbers = len(self.arguments) - 2
        return self.keys[: len(self.keys) - numbers]  # each call's name has a receipt's key

    def joined(self, calls: Sequence[Self]) -> Self:
        """Return one call that makes all these commits."""
        claims = chain.from_iterable(each.names for each in calls)
        receipts = chain.from_iterable(each.keys[len(each.names) :] for each in calls)
        packed, owners, *numbers = zip(*[each.arguments for each in calls], strict=True)
        return self._made([*claims, *receipts], [b"".join(packed), b"".join(owners), *chain(*numbers)])

    def split(self, reply: Reply, calls: Sequence[Self]) -> Iterator[int | Refusal]:
        """Yield the reply to each of the calls; each has one commit."""
        text = reply.decode("latin-1") if isinstance(reply, bytes) else reply
        if not isinstance(text, str) or not _COMMITS.fullmatch(text) or len(text) > len(calls):
            raise replies.failed(f"{reply!r:.80} is no reply with the answers to {len(calls)} commits")
        for answer in text.ljust(len(calls)):
            if answer == "-":
                yield Refusal(replies.SESSION_REUSED, "the session has gone on since this call")
            elif answer == " ":
                yield _full()
            else:
                yield int(answer)


def _full() -> Refusal:
    return Refusal(replies.FULL, "there is no room for new items")
