"""`Idempotency-Key` for any web framework: ASGI and WSGI middlewares that answer repeats of done requests.

The key of a request is claimed before the application runs, and committed before the response is sent.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import math
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, ClassVar, Final, Generic, TypeVar
from urllib.parse import quote

from bloomredis import BloomError
from bloomredis.contrib._bodies import AsgiBody, WsgiBody
from bloomredis.contrib._flavours import at_once, awaited, require_async, require_sync
from bloomredis.contrib._items import item_of

__all__ = ["ASGIMiddleware", "WSGIMiddleware"]

HEADER: Final = "Idempotency-Key"
METHODS: Final = ("POST", "PATCH")
"""The methods that are not idempotent by themselves."""
CLOCK: Final = 0.01
"""Seconds that Retry-After ignores, so that a difference of clocks does not add a whole second."""

QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
"""A quoted string of RFC 9651."""

_log = logging.getLogger("bloomredis")

AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]
WsgiApp = Callable[[dict[str, Any], Any], Iterable[bytes]]
App = TypeVar("App")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that replaces the application's; an error is a problem document of RFC 9457."""

    status: int
    detail: str
    headers: dict[str, str] = field(default_factory=dict)

    def content(self) -> tuple[bytes, dict[str, str]]:
        """Return the body and all headers."""
        document: dict[str, Any] = {"detail": self.detail}
        kind = "application/json"
        if self.status >= 400:
            document |= {"title": HTTPStatus(self.status).phrase, "status": self.status}
            kind = "application/problem+json"
        body = json.dumps(document).encode()
        return body, {"Content-Type": kind, "Content-Length": str(len(body)), **self.headers}

    async def asgi(self, send: Any) -> None:
        """Send the answer, as an ASGI application does."""
        body, headers = self.content()
        encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": encoded})
        await send({"type": "http.response.body", "body": body})

    def wsgi(self, _environ: Any, start_response: Any) -> list[bytes]:
        """Return the answer, as a WSGI application."""
        body, headers = self.content()
        start_response(f"{self.status} {HTTPStatus(self.status).phrase}", list(headers.items()))
        return [body]


async def claim_or_answer(seen: Any, item: Any, what: str = "request", **options: Any) -> Any:
    """Return the claim on an item; else the `Answer` in place of the work: 200 if it is done, 409, or 503.

    :param item: an item, or an `Answer`, which is returned.
    :param what: the name of what is answered.
    :param options: those of `claim`.
    """
    if isinstance(item, Answer):
        return item
    try:
        claim = await awaited(seen.claim(item, **options))
    except BloomError:
        return Answer(503, f"this {what} cannot be checked for a repeat now; send it again later")
    if claim:
        return claim
    if claim.state == "done":
        return Answer(HTTPStatus.OK, f"this {what} was processed already")
    seconds = max(1, math.ceil(claim.remaining - CLOCK))
    return Answer(409, f"this {what} is being processed", {"Retry-After": str(seconds)})


@dataclass(slots=True, kw_only=True)
class Rules:
    """The requests that are checked, the item of each, and the responses after which a request is done."""

    header: str = HEADER
    key: Callable[[Any], Any] | None = None
    methods: Collection[str] = METHODS
    required: bool = False
    done: Callable[[int], object] | None = None
    bare: bool = False
    _has_warned: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.done is not None and (not callable(self.done) or inspect.iscoroutinefunction(self.done)):
            raise TypeError(
                f"done must be a function that takes a status and returns a bool, not {self.done!r}"
            )

    def item(self, request: Any, method: str, path: str, query: str, values: list[str]) -> Any:
        """Return the item of a request; None if it runs unchecked, or an `Answer` if it is refused.

        :param request: the argument of `key`.
        :param values: the values of the header.
        """
        if method not in self.methods:
            return None
        if self.key is None and len(values) > 1:
            many = f"the request has {len(values)} values of {self.header}, not one"
            return Answer(400, f"{many}; a value with a comma needs double quotes")
        found = self.key(request) if self.key is not None else _unquoted("".join(values))
        if is_missing(found):
            return Answer(400, f"the request has no {self.header}") if self.required else None
        if self.key is not None or self.bare:
            return item_of(f"{method} {quote(path)}", found, bare=self.bare)
        return f"{method} {quote(path)}{query and '?'}{quote(query)} {found}"

    def item_of_environ(self, request: Any, environ: dict[str, Any], method: str, path: str) -> Any:
        """Return the item of a request with an environ of WSGI, or a `META` of Django: see `item`."""
        values = split(environ.get("HTTP_" + self.header.upper().replace("-", "_")))
        return self.item(request, method, path, environ.get("QUERY_STRING", ""), values)

    def is_done(self, status: int) -> bool:
        """Return True if a response with this status says that the work was done."""
        if self.done is not None:
            return bool(self.done(status))
        if status == HTTPStatus.FOUND and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "a response with status 302 gives the key of its request back, since it may lead to a log-in "
                "page: answer with 303 after a success, or give done=, a function of the status"
            )
        return 200 <= status < 300 or status == HTTPStatus.SEE_OTHER


@contextmanager
def guarding(request: Any, seen: Any, item: Any) -> Iterator[bool]:
    """Yield True if this guard checks the request, which has an item that no guard around this one holds.

    :param request: the scope or the environ of the request, which all its guards get.
    """
    held, entry = request.setdefault("bloomredis.held", []), (seen.name, item)
    if item is None or entry in held:
        yield False
        return
    held.append(entry)
    try:
        yield True
    finally:
        held.remove(entry)


def is_missing(key: Any) -> bool:
    """Return True if a request has no key."""
    return key is None or (isinstance(key, str | bytes) and not key)


class Ending:
    """The end of an asynchronous claim; once it has begun, no cancelled request stops or replaces it."""

    def __init__(self, claim: Any) -> None:
        self._claim = claim
        self._task: asyncio.Task[None] | None = None

    @property
    def _is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def settle(self, *, done: bool) -> None:
        """Commit or release the claim, unless it has ended; after a failed commit, give the item back.

        :raises ClaimLostError: the claim to commit was lost, also if a renewal has found it before.
        """
        if self._task is not None and not done:
            await self.give_back()
        elif (done or self._claim) and not self._is_running:
            self._task = asyncio.ensure_future(self._claim.commit() if done else self._claim.release())
            _endings.add(self._task)
            self._task.add_done_callback(_endings.discard)
            await asyncio.shield(self._task)

    async def give_back(self) -> None:
        """Give the item back after an error, unless its claim is ending; raise no other error."""
        if not self._is_running:
            await self._claim.__aexit__(BloomError, None, None)


_endings: Final[set[asyncio.Task[None]]] = set()
"""The tasks that end claims; a loop keeps only weak references to its tasks."""


class _Middleware(Generic[App]):
    """The constructor of both kinds of middleware: the filter, the requests and the length of a lease."""

    _require: ClassVar[staticmethod[[Any, str], None]]

    def __init__(
        self,
        app: App,
        seen: Any,
        *,
        header: str = HEADER,
        key: Callable[[Any], Any] | None = None,
        methods: Collection[str] = METHODS,
        required: bool = False,
        lease: float = 30.0,
        done: Callable[[int], object] | None = None,
        bare: bool = False,
    ) -> None:
        self._require(seen, type(self).__name__)
        self._app = app
        self._seen = seen
        self._rules = Rules(header=header, key=key, methods=methods, required=required, done=done, bare=bare)
        self._lease = lease


class ASGIMiddleware(_Middleware[AsgiApp]):
    """ASGI middleware (Starlette, FastAPI, Litestar, Quart): a request whose key is done does not run again.

    ::

        app = ASGIMiddleware(app, seen)
        app.add_middleware(ASGIMiddleware, seen=seen)  # Starlette and FastAPI

    If a request is done, it is answered 200 without the application.  It is answered 409 with Retry-After
    while another worker runs it, and 503 while the filter does not answer.

    The key is committed when the response begins, before it is sent, if its status is 2xx or 303.  The key is
    given back after any other status, after an exception, and if the body was cut off while the application
    read it.  By default the item is the method, the path with its query, and the key; and a request without a
    key runs as usual.

    :param seen: a filter of `bloomredis.asyncio`.
    :param header: the header of the key, which is a quoted string or the bare key.
    :param key: takes the scope of a request and returns its key, for example one that includes the tenant;
        the method and the path are added to it.  None or "" means that the request has no key.
    :param methods: the methods whose requests are checked.
    :param required: answer 400 to a request without a key.
    :param lease: if this worker dies, a retry may run after so many seconds; extended while the request runs.
    :param done: takes the status of a response, and returns True if the request is done.
    :param bare: leave the method and the path out of the item: a key is done for all endpoints together.
    """

    _require = staticmethod(require_async)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        item = self._item(scope) if scope["type"] == "http" else None
        with guarding(scope, self._seen, item) as is_checked:
            if not is_checked:
                await self._app(scope, receive, send)
                return
            body = AsgiBody(receive)
            answer = await self._run(item, scope, body, send)
        if answer is not None:
            await body.drop()
            await answer.asgi(send)

    def _item(self, scope: Any) -> Any:
        name = self._rules.header.lower().encode("latin-1")
        values = [value.decode("latin-1") for key, value in scope["headers"] if key == name]
        query = scope.get("query_string", b"").decode("latin-1")
        return self._rules.item(scope, scope["method"], scope["path"], query, values)

    async def _run(self, item: Any, scope: Any, body: AsgiBody, send: Any) -> Answer | None:
        """Run the application if the item is new, and return None; else return the answer in its place."""
        claim = await claim_or_answer(self._seen, item, lease=self._lease)
        if isinstance(claim, Answer):
            return claim
        ending = Ending(claim)

        async def settled(message: Any) -> None:
            if message["type"] == "http.response.start":
                await ending.settle(done=self._rules.is_done(message["status"]) and not body.is_cut)
            await send(message)

        try:
            await self._app(scope, body.receive, settled)
        except BaseException:
            await ending.give_back()
            raise
        await ending.settle(done=False)  # if there was no response
        return None


class WSGIMiddleware(_Middleware[WsgiApp]):
    """WSGI middleware (Flask, Django, Pyramid, Bottle): a request whose key is done does not run again.

    ``app.wsgi_app = WSGIMiddleware(app.wsgi_app, seen)`` for Flask.  It works like `ASGIMiddleware`, but
    `seen` is a filter of `bloomredis`, and `key` takes the environ.
    """

    _require = staticmethod(require_sync)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer a request."""
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        item = self._rules.item_of_environ(environ, environ, environ["REQUEST_METHOD"], path)
        with guarding(environ, self._seen, item) as is_checked:
            if not is_checked:
                return self._app(environ, start_response)
            body = WsgiBody(environ)
            found = self._run(item, environ, body)
        if not isinstance(found, _Response):
            found = _Response(found, environ)
            body.drop()
        start_response(found.status, found.headers, *found.error)
        return found

    def _run(self, item: Any, environ: dict[str, Any], body: WsgiBody) -> _Response | WsgiApp:
        """Return the application's response if the item is new, else the application that answers instead."""
        claim = at_once(claim_or_answer(self._seen, item, lease=self._lease))
        if isinstance(claim, Answer):
            return claim.wsgi
        with ExitStack() as after_error:
            after_error.push(claim)
            response = _Response(self._app, environ)
            after_error.callback(response.close)
            is_done = self._rules.is_done(int(response.status[:3])) and not body.is_cut
            claim.commit() if is_done else claim.release()
            after_error.pop_all()
        return response


class _Response:
    """The response of a WSGI application, whose beginning is read before it is sent."""

    def __init__(self, app: WsgiApp, environ: dict[str, Any]) -> None:
        self.status = ""
        self.headers: list[tuple[str, str]] = []
        self.error: tuple[Any, ...] = ()
        self._is_begun = False
        self._begun: list[bytes] = []
        self._body = app(environ, self._start)
        self._rest = iter(self._body)
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _start(self, status: str, headers: list[tuple[str, str]], *error: Any) -> Callable[[bytes], None]:
        """Take the status and the headers: the `start_response` of the application.

        An application may replace them after an error, until its first bytes are sent.
        """
        if self._is_begun and error:
            raise error[0][1].with_traceback(error[0][2])
        self.status, self.headers, self.error = status, headers, error
        return self._begun.append

    def _begin(self) -> None:
        """Read the body until its first bytes, since an application may replace its status before them."""
        for piece in self._rest:
            self._begun.append(piece)
            if any(self._begun):
                break
        if not self.status:
            raise RuntimeError("the application has not called start_response")
        self._is_begun = True

    def __iter__(self) -> Iterator[bytes]:
        yield from self._begun
        yield from self._rest

    def close(self) -> None:
        """Close the body, as servers do."""
        if hasattr(self._body, "close"):
            self._body.close()


def split(value: str | None) -> list[str]:
    """Return the values of headers, which a server has joined with commas; a quoted value may contain one."""
    return [] if value is None else [value] if QUOTED.fullmatch(value.strip()) else value.split(",")


def _unquoted(value: str) -> str:
    """Return the key in a header: a quoted string, or the bare key that most clients send."""
    quoted = QUOTED.fullmatch(value := value.strip())
    return value if quoted is None else re.sub(r"\\(.)", r"\1", quoted[1])
