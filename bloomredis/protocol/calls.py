"""Script calls: EVALSHA, then EVAL if the server lacks the script, and WAIT if replicas must confirm."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from bloomredis.protocol.forms import Form, entries, integer, read
from bloomredis.protocol.judging import judge, raise_judged
from bloomredis.protocol.replies import Unconfirmed, word_of
from bloomredis.protocol.scripts import Script, load_script
from bloomredis.protocol.steps import Call, Command, Op, Outcome, Part, PlainCall, Reply, Wire

R = TypeVar("R")


class Wait(NamedTuple):
    """The number of replicas that must confirm a write, and the time to wait for them.

    If the filter's own key holds no string, `touched` names another key to write to.
    """

    replicas: int
    milliseconds: int
    touched: bytes | None = None


_TOUCH: Final = load_script("touch")


def tail_of(keys: Sequence[bytes], arguments: Sequence[Part]) -> Command:
    """Return the parts of a command that follow the script's name."""
    return (b"%d" % len(keys), *keys, *map(as_sent, arguments))


class ScriptCall(Call, Generic[R]):
    """A call of a script by its SHA; `by_text` makes the call for a server that lacks the script.

    :param wait: replicas must confirm the write.
    :param again: the call is idempotent and may be retried after a lost reply.
    """

    wait: Wait | None = None

    def __init__(
        self,
        script: Script[R],
        keys: Sequence[bytes],
        arguments: Sequence[Part],
        wait: Wait | None = None,
        *,
        again: bool = True,
    ) -> None:
        self.script = script
        self.keys = keys
        self.arguments = arguments
        self.wait = wait
        self.is_single = wait is None
        self.again = again

    @property
    def tail(self) -> Command:
        """The parts of the command that follow the script's name."""
        return tail_of(self.keys, self.arguments)

    @property
    def commands(self) -> list[Command]:
        """The commands, sent together."""
        return confirmed(("EVALSHA", self.script.sha, *self.tail), self.wait)

    def wire(self) -> Wire | None:
        """Return the encoded command in one piece and the number of replies; None if the call has a WAIT."""
        return _wire(self)

    def value_of(self, outcome: Outcome) -> R:
        """Return the value of the script's reply; raise the outcome if it is an error.

        :raises ConnectionFailedError: the script never gives such a reply, or too few replicas confirmed.
        """
        if isinstance(outcome, BaseException):
            raise outcome
        reply = outcome if self.wait is None else _confirmed(self.wait, outcome)
        return read(self.script.verb, self.script.form, reply)

    def by_text(self) -> Call:
        """Return the same call with EVAL, which carries the script."""
        command = ("EVAL", self.script.text, *self.tail)
        commands = confirmed(command, self.wait)
        call = _TextCall(commands, is_single=self.wait is None, again=self.again)
        call.stands_for = (self,)
        return call


class _TextCall(PlainCall):
    """A call of a script by its text."""

    def wire(self) -> Wire | None:
        return _wire(self)


def _wire(call: Call) -> Wire | None:
    return ([packed(call.commands[0])], 1) if call.is_single else None


def call(
    script: Script[R],
    keys: Sequence[bytes],
    arguments: Sequence[Part],
    wait: Wait | None = None,
    *,
    again: bool = True,
) -> Op[R]:
    """Run a script and return the value of its reply; raise the same errors as `finish_call`."""
    made = ScriptCall(script, keys, arguments, wait, again=again)
    try:
        return made.value_of((yield made))
    except Exception as error:
        failed = error
    return (yield from finish_call(made, failed))


def finish_call(call: ScriptCall[R], outcome: Outcome) -> Op[R]:
    """Return the value of the reply to a call; repeat the call with EVAL if the server lacks the script.

    EVAL takes one more round trip.  A SCRIPT FLUSH at any moment neither loses nor repeats the call.

    :param outcome: the reply or error of the first attempt.
    :raises Refusal: the script refuses the call.
    :raises ServerRefusedError: the server refuses the call.
    :raises ConnectionFailedError: no reply came, the reply has another form, or too few replicas confirmed
        the write.
    """
    try:
        return call.value_of(outcome)
    except Exception as error:
        failed = error
    if word_of(failed) == "NOSCRIPT":
        judge(call, failed)
        try:
            return call.value_of((yield call.by_text()))
        except Exception as error:
            failed = error
    raise_judged(call, failed)


def send_command(command: Command, form: Form[R]) -> Op[R]:
    """Send a command that is safe to retry; return the value of its reply."""
    call = PlainCall([command])
    try:
        reply: Reply = yield call
    except Exception as error:
        raise_judged(call, error)
    return read(command[0], form, reply)


def send_all(commands: list[Command], form: Form[R]) -> Op[list[R]]:
    """Send commands that are safe to retry; return the values of the replies, or raise the first error."""
    call = PlainCall(commands, is_single=False)
    try:
        replies: list[Reply] = yield call
    except Exception as error:
        raise_judged(call, error)
    for each in replies:
        if isinstance(each, Exception):
            raise_judged(call, each)
    return [read(command[0], form, each) for command, each in zip(commands, replies, strict=True)]


def confirmed(command: Command, wait: Wait | None) -> list[Command]:
    """Return a command, followed by the commands that wait for replicas."""
    if wait is None:
        return [command]
    # From 7.2 on, WAIT covers only writes of this connection, and an add without new items writes nothing.
    touch: Command = ("EVAL", _TOUCH.text, 1, command[3], 0)
    if wait.touched is not None:
        touch = ("SET", wait.touched, b"", "PX", wait.milliseconds)
    return [command, touch, ("WAIT", wait.replicas, wait.milliseconds)]


def _confirmed(wait: Wait, outcome: Reply) -> Reply:
    """Return the reply to a write; raise `Unconfirmed` if too few replicas confirmed it."""
    reply, touched, replicas = read("WAIT", entries, outcome)
    if isinstance(reply, Exception):
        raise reply
    for result in (touched, replicas):
        if isinstance(result, Exception):  # the write itself was done
            raise Unconfirmed(f"no replica confirmed it ({result})")
    count = read("WAIT", integer, replicas)
    if count < wait.replicas:
        raise Unconfirmed(
            f"only {count} of {wait.replicas} replicas confirmed it within {wait.milliseconds} ms"
        )
    return reply


def as_sent(value: Part) -> bytes:
    """Return a part of a command as bytes."""
    if isinstance(value, bytes):
        return value
    return b"%d" % value if isinstance(value, int) else value.encode()


_SIZED: Final = b"$%d\r\n%b\r\n"
"""The encoding of one part of a command: its size, then its bytes."""


def parts(values: Sequence[Part]) -> bytes:
    """Return parts of a command, encoded for the wire."""
    return b"".join([_SIZED % (len(part), part) for part in map(as_sent, values)])


def packed(command: Command) -> bytes:
    """Return a command, encoded for the wire."""
    return b"*%d\r\n%b" % (len(command), parts(command))


def framed(command: Command, varying: Container[int]) -> bytes:
    """Return an encoded command as a format string for the size and the bytes of each part that varies.

    :param varying: the indexes of the parts that vary.
    """
    sent = [_SIZED if i in varying else parts((each,)).replace(b"%", b"%%") for i, each in enumerate(command)]
    return b"*%d\r\n%b" % (len(sent), b"".join(sent))
