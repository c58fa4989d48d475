"""Retries: requests for an answer that an earlier request did not get."""

from __future__ import annotations

from tests.simulation.history import Entry, History, Request


class Repeats:
    """The requests of one history."""

    def __init__(self, history: History) -> None:
        self._history = history

    def _inherited(self, request: Request) -> list[Request]:
        """Return the unanswered requests that a request retries, directly or through others."""
        left = [each for each in self._history.unknown if each.item == request.item and each is not request]
        found, asking = [], [request]
        while asking and left:
            now = asking.pop()
            asking += [each for each in left if self._inherits(now, each)]
            found += [each for each in left if self._inherits(now, each)]
            left = [each for each in left if each not in found]
        return found

    def _since_first(self, request: Request) -> list[Entry]:
        """Return the stored states since the first of the requests that a request retries."""
        first = min([request.entry, *(each.entry for each in self._inherited(request))])
        return self._history.log[first:]

    def _was_asked_for(self, request: Request) -> bool:
        """Return whether a retry with the token of a request got an answer."""
        asking = self._history.requests[request.item]
        return any(each.earlier is request and each.state == "answered" for each in asking)

    @staticmethod
    def _runs_beside(request: Request, other: Request) -> bool:
        """Return whether two calls of one object ran at the same time: it may answer either first."""
        both = (request.owner, request.verb) == (other.owner, other.verb)
        return both and request.earlier is other.earlier is None and request.overlaps(other)

    @staticmethod
    def _inherits(request: Request, earlier: Request) -> bool:
        """Return whether a request gets an earlier one's missing answer."""
        if request.verb != earlier.verb:
            return False
        token = request.earlier
        if token is None:
            return request.owner is earlier.owner
        return token is earlier or _named(token) == _named(earlier)


def _named(request: Request) -> str | None:
    """Return a token without its time, which is rounded."""
    return request.token and request.token.rpartition("/")[0]
