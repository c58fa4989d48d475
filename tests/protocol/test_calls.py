"""The steps of operations, with scripted replies: no server, no mocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import pytest
import redis

from bloomredis.bits import limits
from bloomredis.errors import ConnectionFailedError
from bloomredis.operations.kinds.plain import PlainOperations
from bloomredis.protocol import calls, gather, replies, scripts, steps
from bloomredis.protocol.steps import Call, Many, Op, PlainCall
from bloomredis.stored.header import Header
from bloomredis.stored.state.base import PROBES_A_CALL
from tests.support.values import for_each

T = TypeVar("T")
ADD = scripts.load_script("add", variant=("one", "bits"))
HEADER = Header(
    layout="classic", num_hashes=7, num_bits=959, capacity=100, error_rate=0.01, generation=b"12345678"
)
RESERVED = [HEADER.pack().hex().encode(), limits.HEADER_BYTES + 120, -1]


def play(operation: Op[T], replies: list[Any]) -> tuple[T, list[Any]]:
    """Run an operation with scripted replies; return its answer and its commands."""
    sent: list[Any] = []
    script: Iterator[Any] = iter(replies)
    try:
        sent.append(next(operation))
        for reply in script:
            step = operation.throw if isinstance(reply, Exception) else operation.send
            sent.append(step(reply))
    except StopIteration as end:
        assert not list(script), "the operation ended before its replies did"
        return end.value, sent
    raise AssertionError("the operation wants more replies")


def test_a_known_script_is_one_round_trip() -> None:
    """EVALSHA is sent, and its answer returned."""
    answer, sent = play(calls.call(ADD, [b"k"], [b"a"]), [b"1"])
    assert answer == b"1"
    assert [each.commands for each in sent] == [[("EVALSHA", ADD.sha, b"1", b"k", b"a")]]


def test_an_unknown_script_is_taught_by_the_call_itself() -> None:
    """After NOSCRIPT the same call is sent as EVAL: one more round trip and no other."""
    answer, sent = play(calls.call(ADD, [b"k"], [b"a"]), [redis.exceptions.NoScriptError("x"), b"1"])
    assert answer == b"1"
    assert repr(sent[1:]) == repr([PlainCall([("EVAL", ADD.text, b"1", b"k", b"a")])])


def test_the_clients_own_errors_pass_through() -> None:
    """An error without a meaning here reaches the caller unchanged."""
    error = redis.ResponseError("ERR unknown")
    with pytest.raises(redis.ResponseError) as caught:
        play(calls.call(ADD, [b"k"], [b"a"]), [error])
    assert caught.value is error


def test_no_answer_is_told_from_a_refusal() -> None:
    """A connection error means that the call may have been executed."""
    for error in (redis.ConnectionError("gone"), redis.TimeoutError("slow")):
        with pytest.raises(ConnectionFailedError) as caught:
            play(calls.call(ADD, [b"k"], [b"a"]), [error])
        assert caught.value.__cause__ is error


def test_a_refusal_is_read_from_the_error_text() -> None:
    """The first word says which refusal it is."""
    with pytest.raises(replies.Refusal) as caught:
        play(calls.call(ADD, [b"k"], [b"a"]), [redis.ResponseError("BLOOMMISSING no key")])
    assert caught.value.word == replies.MISSING


def test_replies_of_a_decoding_client_are_understood() -> None:
    """A client with decode_responses=True returns str where others return bytes."""
    operations = PlainOperations("f", capacity=100, error_rate=0.01)
    answer, _ = play(operations.add_many(["a", "b"]), [[HEADER.pack().hex(), *RESERVED[1:]], "10"])
    assert answer == [True, False]


def test_a_batch_is_cut_into_short_scripts() -> None:
    """No script gets more probes than it can make in about 2 ms."""
    operations = PlainOperations("f", capacity=100, error_rate=0.01)
    per_call = PROBES_A_CALL // 7
    replies = [RESERVED, b"1" * per_call, b"0" * per_call, b"1" * 10]
    answer, sent = play(operations.add_many(range(2 * per_call + 10)), replies)
    assert answer == [True] * per_call + [False] * per_call + [True] * 10
    assert [_length(step.commands[0][6]) // 28 for step in sent[1:]] == [
        per_call,
        per_call,
        10,
    ]


def _length(argument: object) -> int:
    assert isinstance(argument, bytes)
    return len(argument)


def test_an_empty_batch_does_no_io() -> None:
    """With no items, nothing is sent."""
    operations = PlainOperations("f")
    assert play(operations.add_many([]), [])[0] == []
    assert play(operations.contains_many([]), [])[0] == []


@for_each(
    "reply",
    [
        [b"00" * 64, 184, -1],
        [HEADER.pack().hex(), 183, -1],
        [HEADER.pack()[:63].hex(), 184, -1],
    ],
)
def test_a_corrupted_header_is_a_mismatch(reply: list[Any]) -> None:
    """A string is a filter only if its whole header is valid."""
    from bloomredis import FilterMismatchError

    with pytest.raises(FilterMismatchError):
        play(PlainOperations("f").create(), [reply])


# -- concurrent operations


def asking(*asked: Call) -> Op[Any]:
    """Ask for several things in turn, and return the answers."""
    told = []
    for call in asked:
        try:
            told.append((yield call))
        except redis.ConnectionError:
            told.append("no answer")
    return told


A, B, C = (PlainCall([("GET", name)]) for name in "abc")
BOTH = PlainCall([("GET", "a"), ("GET", "c")], is_single=False)


def test_what_is_asked_for_together_travels_together() -> None:
    """Calls of one command and of several become one step; a last one alone is sent alone."""
    answers, sent = play(gather.gather([asking(A, B), asking(BOTH), asking(C)]), [[1, [2, 3], 4], "the b"])
    assert sent == [Many([A, BOTH, C]), B]
    assert answers == [[1, "the b"], [[2, 3]], [4]]


def test_an_error_reaches_the_operation_that_asked() -> None:
    """A single call's error is raised in its operation; that of one of several commands stays a value."""
    lost, refused = redis.ConnectionError("gone"), redis.ResponseError("no")
    answers, _ = play(
        gather.gather([asking(A, B), asking(BOTH), asking(C)]), [[lost, [1, refused], refused], 2]
    )
    assert answers == [["no answer", 2], [[1, refused]], refused]


def test_no_more_than_wanted_are_under_way() -> None:
    """The next operation begins when one has ended."""
    answers, sent = play(gather.gather([asking(A), asking(B), asking(C)], most=2), [[1, 2], 3])
    assert sent == [Many([A, B]), C]
    assert answers == [[1], [2], [3]]


def test_replies_are_cut_as_the_calls_are() -> None:
    """Each call gets as many replies as it has commands, in a list unless it is a single command."""
    each = [A, BOTH, C, PlainCall([("GET", "d")], is_single=False)]
    assert steps.joined(each) == [("GET", name) for name in "aaccd"]
    assert steps.parted(each, range(5)) == [0, [1, 2], 3, [4]]


def test_all_are_told_of_an_end() -> None:
    """An interrupted driver closes the operations in flight, and each of them sees it."""
    told = []

    def waiting() -> Op[None]:
        try:
            yield A
        finally:
            told.append("closed")

    both = gather.gather([waiting(), waiting()])
    next(both)
    both.close()
    assert told == ["closed"] * 2
