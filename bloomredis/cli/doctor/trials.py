"""A trial of a server: each verb of each kind of filter runs once, under one random name.

Every key gets 60 seconds to live and is deleted at the end.  No command for the whole server is sent.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import BytesIO
from typing import Any, Final

from redis.exceptions import NoScriptError, RedisError, ResponseError

import bloomredis
from bloomredis.bits.module_items import ModuleItems
from bloomredis.cli.doctor.findings import Finding, Severity
from bloomredis.cli.kinds import CLASSES, Kind
from bloomredis.cli.stderr import problem
from bloomredis.errors import BloomError, FilterNotFoundError, OutcomeUnknownError
from bloomredis.protocol.keys import auxiliary_prefix
from bloomredis.protocol.metering import Meter
from bloomredis.protocol.replies import word_of
from bloomredis.protocol.scripts import every_script
from bloomredis.protocol.steps import Call, Many, joined

SECONDS: Final = 60
_SIZE: Final[dict[str, Any]] = {"capacity": 1000, "error_rate": 1e-9}
_LASTING: Final[dict[str, Any]] = {**_SIZE, "ttl": SECONDS}

KINDS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    **{kind: (CLASSES[kind], _LASTING) for kind in CLASSES},
    Kind.ROTATING: (CLASSES[Kind.ROTATING], {**_SIZE, "window": SECONDS * 3 / 4}),
    "classic": (CLASSES[Kind.FIXED], {**_LASTING, "layout": "classic"}),
    ModuleItems.name: (CLASSES[Kind.FIXED], {**_LASTING, "layout": ModuleItems.name}),
}
"""The class and the parameters of each filter that is made."""


def _unknown_script(client: Any, key: str) -> object:
    """Call a script that no server has loaded."""
    try:
        return client.evalsha(secrets.token_hex(20), 1, key)
    except NoScriptError:
        return "NOSCRIPT"


def _largest_script(client: Any, key: str) -> object:
    """Let the server compile the library's largest script, with a comment that makes it a new one."""
    largest = max((script.text for script in every_script()), key=len)
    return client.eval(f"do return #KEYS end -- {secrets.token_hex(8)}\n{largest}", 1, key)


def _commands(client: Any, key: str) -> None:
    """Raise an error with the names of the commands that scripts call and the server lacks.

    The reply to a call without arguments says whether a command is there, and runs none but TIME.
    """
    called = {name for script in every_script() for name in re.findall(r"call\('([A-Z]+)'", script.text)}
    if missing := client.eval(_MISSING, 1, key, *sorted(called - _OPTIONAL)):
        raise ResponseError(f"unknown command: {missing if isinstance(missing, str) else missing.decode()}")


_OPTIONAL: Final = frozenset(("INFO", "HGET", "HSET"))
"""Calls that a filter does without, or that only a bitmap of Redisson makes."""
_MISSING: Final = """
local missing = {}
for _, name in ipairs(ARGV) do
  local reply = redis.pcall(name)
  if reply.err and reply.err:find('nknown') then
    missing[#missing + 1] = name
  end
end
return table.concat(missing, ', ')
"""


def _again(f: Any, client: Any, **options: Any) -> Any:
    """Return another object of a filter, with other options."""
    return type(f).open(client, f.name, replica_timeout=0.2, **options)


def _queued(f: Any, client: Any) -> Iterable[object]:
    """Return the answers of an add and a test in a pipeline, without a receipt."""
    with client.pipeline(transaction=False) as pipe:
        other = _again(f, client, retry_safe=False)
        other.queue_add(pipe, "q")
        other.queue_contains(pipe, "x")
        answers: list[object] = pipe.execute()
        return answers


def _restored(f: Any, client: Any) -> Any:
    """Save a filter, and restore it under another name."""
    with BytesIO() as file:
        f.save(file)
        file.seek(0)
        return type(f).restore(client, f"{f.name}:saved", file)


def _adopted(f: Any, client: Any) -> Any:
    """Make a `BloomFilter`, and turn it into a scaling filter."""
    adopt, made = f.adopt, bloomredis.BloomFilter(client, f"{f.name}:adopted", **_LASTING)
    made.add("a")
    return adopt(client, made.name)


Try = Callable[[Any, Any], object]

OTHERS: Final[dict[str, tuple[Try, object]]] = {
    "EVALSHA of a script that was never loaded": (_unknown_script, "NOSCRIPT"),
    "EVAL of the largest script": (_largest_script, 1),
    "each command that scripts call": (_commands, None),
    "PERSIST, for filters without a time to live": (lambda client, key: client.persist(key), False),
}
"""What no verb of the trial does: each with a client and a key that does not exist, and the right answer."""

VERBS: Final[dict[str, tuple[Try, object]]] = {
    "create": (lambda f, _: f.create(), None),
    "acknowledge": (lambda f, _: f.acknowledge(), False),
    "add": (lambda f, _: [f.add("a"), f.add("a")], [True, False]),
    "add_many": (lambda f, _: f.add_many(["a", "b"]), [False, True]),
    "add_mask": (lambda f, _: f.add_mask(["b", "c"]).tolist(), [False, True]),
    "update": (lambda f, _: f.update(range(300)), 300),
    "dedupe": (lambda f, _: list(f.dedupe(["a", "d", "d"])), ["d"]),
    "contains": (lambda f, _: [f.contains("a"), f.contains("x")], [True, False]),
    "contains_many": (lambda f, _: f.contains_many(["a", "x"]), [True, False]),
    "contains_mask": (lambda f, _: f.contains_mask(["a", "x"]).tolist(), [True, False]),
    "claim": (lambda f, _: [f.claim(i, lease=30, renew=False).state for i in "ea"], ["claimed", "done"]),
    "commit_many": (lambda f, _: f.commit_many(f.claim_many(["f", "a"], lease=30)), ["done", "done"]),
    "release_many": (lambda f, _: f.release_many(f.claim_many(["g"], lease=30)), ["released"]),
    "extend_many": (lambda f, _: f.extend_many(f.claim_many(["h"], lease=30), 40), ["claimed"]),
    "once": (lambda f, _: f.once("trial", lease=30)(len)("work"), 4),
    "remove": (lambda f, _: [f.remove("a"), f.remove("x")], [True, False]),
    "queue_add": (_queued, [1, 0]),
    "info": (lambda f, _: f.info().capacity >= _SIZE["capacity"], True),
    "snapshot": (lambda f, _: f.snapshot().contains_many(["b", "x"]), [True, False]),
    "save": (lambda f, client: _restored(f, client).contains("b"), True),
    "copy": (lambda f, client: f.copy(client, f"{f.name}:copy").contains("b"), True),
    "merge": (lambda f, client: f.merge(type(f)(client, f"{f.name}:copy")), None),
    "adopt": (lambda f, client: _adopted(f, client).contains("a"), True),
    "expire": (lambda f, _: f.expire(SECONDS), None),
    "add(min_replicas=1)": (lambda f, client: _again(f, client, min_replicas=1).add("r"), True),
    "clear": (lambda f, _: [f.clear(), f.contains("b")], [None, False]),
    "delete": (lambda f, _: f.delete(), True),
}
"""The verbs, in order: what each does with a filter and a client, and the right answer."""


_OF_NAME: Final = (
    "give the NAME of a filter that this user may use: the keys of the trial begin with its prefix"
)


def try_all(client: Any, name: str | None, layout: str | None) -> Iterator[Finding]:
    """Try each verb with a filter of each kind, and what no verb does; yield a finding for each.

    :param name: the trial's keys begin with the prefix of this filter's other keys.
    :param layout: the layout that is needed; a missing module is only noted if it is another.
    """
    token, tried = secrets.token_hex(8), dict[tuple[str, Severity], tuple[list[str], str]]()
    base = auxiliary_prefix((name or "bloomredis").encode()).decode() + f"trial:{token}"

    def finding(severity: Severity, what: str, words: str) -> Finding:
        return Finding(severity, what, words, _OF_NAME if name is None and "to access" in words else "")

    for what, (call, right) in OTHERS.items():
        severity, words = outcome_of(partial(call, client, base), right)
        yield finding(severity, what, words)
    for kind, (class_, parameters) in KINDS.items():
        own = re.sub("[{}]", "", base) if kind == Kind.SHARDED else base  # its name must not have braces
        f = getattr(bloomredis, class_)(client, f"{own}:{kind}", **parameters)
        for verb, (severity, words) in try_verbs(f, client):
            worst = Severity.NOTE if kind == ModuleItems.name != layout else Severity.CRITICAL
            tried.setdefault((verb, min(severity, worst)), ([], words))[0].append(kind)
    for (verb, severity), (kinds, words) in tried.items():
        yield finding(severity, f"{verb}: {', '.join(kinds)}", words)


def try_verbs(f: Any, client: Any) -> Iterator[tuple[str, tuple[Severity, str]]]:
    """Yield what the trial of each verb of a filter comes to; at the end delete all of its keys."""
    keys, wrong = _Keys(), Severity.CRITICAL
    try:
        for verb, (call, right) in VERBS.items():
            try:
                outcome = keys.count_thread(outcome_of, partial(call, f, client), right, wrong)
            except (AttributeError, TypeError):
                continue  # this kind has no such verb
            keys.expire(client, SECONDS * 1000)
            yield verb, outcome
            if outcome[0] is Severity.CRITICAL:
                wrong = Severity.UNCHECKED  # later answers depend on this one
                if verb == next(iter(VERBS)):
                    break  # there is nothing to try the other verbs on
    finally:
        keys.expire(client, 0)


class _Keys(Meter):
    """The keys of the scripts that this thread calls."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: set[Any] = set()

    def count_sent(self, client: object, step: object) -> None:  # noqa: ARG002 - as the base class has it
        """Note the keys of a step before it is executed."""
        calls = step.calls if isinstance(step, Many) else [step] if isinstance(step, Call) else []
        for command in joined(calls):
            if command[0] == "EVALSHA":
                self._keys.update(command[3 : 3 + int(command[2])])

    def expire(self, client: Any, milliseconds: int) -> None:
        """Let each key so far expire after this time; 0 deletes it, by two commands if need be."""
        with client.pipeline(transaction=False) as pipe:
            for key in self._keys:
                pipe.pexpire(key, milliseconds)
                if not milliseconds:
                    pipe.unlink(key)
            pipe.execute(raise_on_error=False)


def outcome_of(
    run: Callable[[], object], right: object, wrong: Severity = Severity.CRITICAL
) -> tuple[Severity, str]:
    """Return what a trial comes to, with the server's own words if it refuses.

    :param wrong: the severity of another answer than the right one, and of a filter that is missing.
    """
    try:
        found = run()
    except (BloomError, RedisError) as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        severity = wrong if isinstance(error, FilterNotFoundError) else Severity.CRITICAL
        if isinstance(error, OutcomeUnknownError) and not isinstance(cause, RedisError):
            severity = Severity.NOTE  # the write was done, but no replica confirmed it
        words = " ".join(problem(cause).split())
        word = word_of(cause) if isinstance(cause, RedisError) else ""
        return severity, words if word in words else f"{word} {words}"
    is_right = found == right
    return (Severity.OK, "") if is_right else (wrong, f"the answer is {found!r}, not {right!r}")
