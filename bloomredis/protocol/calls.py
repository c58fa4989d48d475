"""One script call: EVALSHA, EVAL if the server lacks the script, WAIT if replicas must confirm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from bloomredis.protocol.forms import Form, entries, integer, read
from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.replies import Unconfirmed, raise_explained
from bloomredis.protocol.scripts import Script, load
from bloomredis.protocol.steps import Call, Command, Op, Outcome, Part, Reply

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Wait:
    """Replicas that must confirm a write, and the time to wait for them.

    `touched` is a key to write to besides, if the filter's own key is no string.
    """

    replicas: int
    milliseconds: int
    touched: bytes | None = None


_TOUCH: Final = load("touch")
_FIRST_KEY: Final = 3
"""Index of the first key in the command of a script."""


def tail_of(keys: Sequence[bytes], arguments: Sequence[Part]) -> Command:
    """Return what stands behind a script's name in its command."""
    return (b"%d" % len(keys), *keys, *map(as_sent, arguments))


class ScriptCall(Call, Generic[R]):
    """A call of a script by its SHA, and of its text for a server that lacks it.

    :param wait: replicas must confirm the write.
    :param reads: the script is read-only, and a replica may answer.
    :param again: the call is idempotent, and may be sent again after a lost reply.
    """

    __slots__ = ("script", "tail", "wait")

    def __init__(
        self,
        script: Script[R],
        tail: Command,
        wait: Wait | None = None,
        *,
        reads: bool = False,
        again: bool = True,
    ) -> None:
        command = ("EVALSHA", script.sha, *tail)
        super().__init__(confirmed(command, wait), wait is None, script.text if reads else "", again)
        self.script = script
        self.tail = tail
        self.wait = wait

    def by_text(self) -> Call:
        """Return the same call with EVAL, which cannot fail for a missing script."""
        command = ("EVAL", self.script.text, *self.tail)
        return Call(confirmed(command, self.wait), self.wait is None, again=self.again, server=self.server)


def call(
    script: Script[R],
    keys: Sequence[bytes],
    arguments: Sequence[Part],
    wait: Wait | None = None,
    *,
    again: bool = True,
) -> Op[R]:
    """Run a script; raise what `answered` raises."""
    made = ScriptCall(script, tail_of(keys, arguments), wait, again=again)
    outcome: Reply
    try:
        outcome = yield made
    except Exception as error:
        outcome = error
    return (yield from answered(made, outcome))


def answered(call: ScriptCall[R], outcome: Outcome) -> Op[R]:
    """Return what the reply to a call says; a server that lacks the script gets it with the same call.

    That takes one more round trip: a SCRIPT FLUSH at any moment neither loses the call nor executes it twice.

    :param outcome: the reply or the error of its first sending.
    :raises Refusal: the script refuses.
    :raises ServerRefusedError: the server does.
    :raises ConnectionFailedError: no reply came, or one of another form, or too few replicas confirmed the
        write.
    """
    try:
        try:
            reply = _reply(call, outcome)
        except Exception as error:
            if not any(kind.__name__ == "NoScriptError" for kind in type(error).__mro__):
                raise
            reply = _reply(call, (yield call.by_text()))
    except Exception as error:
        raise_explained(error)
    return read(call.script.verb, call.script.form, reply)


def send(command: Command, form: Form[R]) -> Op[R]:
    """Send a command that may be sent again; return what its reply says."""
    try:
        reply: Reply = yield Call([command])
    except Exception as error:
        raise_explained(error)
    return read(command[0], form, reply)


def send_all(commands: list[Command], form: Form[R]) -> Op[list[R]]:
    """Send commands that may be sent again; raise the first error that stands among the replies."""
    try:
        replies: list[Reply] = yield Call(commands, is_single=False)
    except Exception as error:
        raise_explained(error)
    for each in replies:
        if isinstance(each, Exception):
            raise_explained(each)
    return [read(command[0], form, each) for command, each in zip(commands, replies, strict=True)]


def confirmed(command: Command, wait: Wait | None) -> list[Command]:
    """Return a command, and those behind it that wait for replicas."""
    if wait is None:
        return [command]
    # From 7.2 on WAIT covers only writes of this connection, and an add of known items writes nothing.
    touch: Command = ("EVAL", _TOUCH.text, 1, command[3], 0)
    if wait.touched is not None:
        touch = ("SET", wait.touched, b"", "PX", wait.milliseconds)
    return [command, touch, ("WAIT", wait.replicas, wait.milliseconds)]


def _reply(call: ScriptCall[R], outcome: Outcome) -> Reply:
    """Return the reply in the outcome of a sending; raise its error, or `Unconfirmed`."""
    if isinstance(outcome, BaseException):
        raise outcome
    wait = call.wait
    if wait is None:
        return outcome
    reply, touched, replicas = read("WAIT", entries, outcome)
    if isinstance(reply, Exception):
        raise reply
    for result in (touched, replicas):
        if isinstance(result, Exception):  # which does not undo the write
            raise Unconfirmed(f"no replica confirmed the write: {result}")
    count = read("WAIT", integer, replicas)
    if count < wait.replicas:
        raise Unconfirmed(
            f"only {count} of {wait.replicas} replicas confirmed the write within {wait.milliseconds} ms"
        )
    return reply


def as_sent(value: Part) -> bytes:
    """Return a part of a command as bytes."""
    return b"%d" % value if isinstance(value, int) else as_bytes(value)


class Frame:
    """The parts of a script's command that are the same in each call with so many keys and arguments.

    :param command: one of these calls.
    :param keys: how many keys of it stand behind its first one, and differ.
    :param arguments: how many arguments differ, which are the last.
    """

    __slots__ = ("before", "between")

    def __init__(self, command: Command, keys: int, arguments: int) -> None:
        first = _FIRST_KEY + 1
        self.before = beginning(command[:first], more=len(command) - first)
        self.between = parts(command[first + keys : len(command) - arguments])

    def wire(self, keys: Sequence[bytes], arguments: Sequence[Part]) -> bytes:
        """Return a command as it is sent."""
        sent = [b"$%d\r\n%b\r\n" % (len(key), key) for key in keys]
        given = [b"$%d\r\n%b\r\n" % (len(each), each) for each in map(as_sent, arguments)]
        return b"".join((self.before, *sent, self.between, *given))


def parts(values: Command) -> bytes:
    """Return parts of a command."""
    texts = map(as_sent, values)
    return b"".join([b"$%d\r\n%b\r\n" % (len(text), text) for text in texts])


def beginning(values: Command, *, more: int) -> bytes:
    """Return the beginning of a command: its first parts, behind which come so many more."""
    return b"*%d\r\n%b" % (len(values) + more, parts(values))
