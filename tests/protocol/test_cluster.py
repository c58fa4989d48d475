"""Redirections of a cluster, with scripted nodes: no server, no mocks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import redis
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    RedisClusterException,
    SlotNotCoveredError,
    TryAgainError,
)

from bloomredis.errors import ConnectionFailedError, ServerRefusedError
from bloomredis.protocol import calls, cluster, replies, scripts, steps
from bloomredis.protocol.calls import Wait
from bloomredis.protocol.cluster import NodeAt, NodeToRead, NodeToWrite, RefreshMap, RefreshSlot, Send
from bloomredis.protocol.judging import Verdict, judge, raise_judged
from tests.support.values import for_each

ADD = scripts.load_script("add", variant=("one", "bits"))
COMMAND = ("EVALSHA", ADD.sha, 2, b"k", b"{k}:receipt:1", b"identity")
CALL = steps.PlainCall([COMMAND])
ASKING = ("ASKING",)
OWNER: Any = "owner"


class Client:
    """A client with the slot map of a scripted cluster."""


def play(
    step: Any, *, says: Iterable[Any], knows: dict[type, Any] | None = None, client: Client | None = None
) -> tuple[Any, list[Any]]:
    """Do a step on a cluster with these replies; return the answer or the error, and all acts."""
    acts: list[Any] = []
    said, known = (
        iter(says),
        {NodeToWrite: "owner", NodeAt: ("other", False), NodeToRead: None, **(knows or {})},
    )
    run = cluster.run if isinstance(step, list) else cluster.make
    course = run(client or Client(), step)
    reply: Any = None
    try:
        while True:
            act = course.throw(reply) if isinstance(reply, Exception) else course.send(reply)
            acts.append(act)
            reply = next(said) if isinstance(act, Send) else known.get(type(act))
    except StopIteration as end:
        return end.value, acts
    except Exception as error:
        return error, acts


def sent(acts: list[Any]) -> list[tuple[Any, list[Any]]]:
    """Return the commands that each node got."""
    return [(act.node, act.commands) for act in acts if isinstance(act, Send)]


def errors(kind: Callable[[str], Exception]) -> Exception:
    return kind("866 127.0.0.1:7001")


def test_a_call_goes_to_the_owner_of_its_key() -> None:
    """It needs one look at the client's map, and one round trip."""
    answer, acts = play(CALL, says=[[1]])
    assert answer == 1
    assert acts == [NodeToWrite(b"k"), Send(OWNER, [COMMAND])]


def test_moved_makes_the_client_learn() -> None:
    """The owner is looked up again, after the client was told that its map is old."""
    answer, acts = play(CALL, says=[errors(MovedError), [1]])
    assert answer == 1
    assert [type(act) for act in acts] == [NodeToWrite, Send, RefreshSlot, NodeToWrite, Send]


def test_ask_is_followed_on_one_connection() -> None:
    """ASKING and the call are sent together, and the client's map stays the same."""
    answer, acts = play(CALL, says=[errors(AskError), [b"OK", 1]])
    assert answer == 1
    assert sent(acts) == [("owner", [COMMAND]), ("other", [ASKING, COMMAND])]
    assert RefreshSlot not in map(type, acts)


def test_the_connection_to_a_node_that_the_client_does_not_know_is_closed() -> None:
    """Such a node is made for one call."""
    answer, acts = play(CALL, says=[errors(AskError), [b"OK", 1]], knows={NodeAt: ("made", True)})
    assert answer == 1
    assert acts[2:] == [NodeAt("127.0.0.1", 7001, OWNER), Send("made", [ASKING, COMMAND], is_made=True)]  # type: ignore[arg-type]


def test_a_migration_is_outlasted(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRYAGAIN is retried until the time limit; then the call was certainly not executed."""
    monkeypatch.setattr("time.monotonic", map(float, itertools.count()).__next__)
    call = steps.PlainCall([COMMAND])
    met, acts = play(call, says=itertools.repeat(errors(TryAgainError)))
    assert isinstance(met, TryAgainError)
    assert len(sent(acts)) == cluster.RETRY_SECONDS + 1
    with pytest.raises(ServerRefusedError, match="; 31 attempts in ") as refused:
        raise_judged(call, met)
    assert refused.value.word == "TRYAGAIN"


def test_the_attempts_of_a_shared_round_trip_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of the error has one more than the attempts that follow by itself."""
    monkeypatch.setattr("time.monotonic", map(float, itertools.count()).__next__)

    class Node:
        name = "owner"

    call = steps.PlainCall([COMMAND])
    knows: dict[type, Any] = {NodeToWrite: Node(), cluster.SendAll: [[errors(TryAgainError)]]}
    (met,), _ = play([call], says=itertools.repeat(errors(TryAgainError)), knows=knows)
    with pytest.raises(ServerRefusedError, match="; 32 attempts in "):
        raise_judged(call, met)


def test_a_doubt_outlives_a_refusal_to_execute(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an unanswered attempt, TRYAGAIN to later ones does not prove that nothing was executed."""
    monkeypatch.setattr("time.monotonic", map(float, itertools.count()).__next__)
    gone, call = redis.ConnectionError("gone"), steps.PlainCall([COMMAND])
    met, _ = play(call, says=itertools.chain([gone], itertools.repeat(errors(TryAgainError))))
    assert call.lost == "gone"
    assert judge(call, met) is Verdict.PENDING


def test_what_was_not_answered_is_sent_again() -> None:
    """It is retried several times, and fewer if the client does not find the owner again."""
    gone = redis.ConnectionError("gone")
    answer, acts = play(CALL, says=[gone, [1]])
    assert answer == 1
    assert [type(act) for act in acts] == [NodeToWrite, Send, RefreshSlot, NodeToWrite, Send]
    met, acts = play(CALL, says=itertools.repeat(gone))
    assert (met, len(sent(acts))) == (gone, 1 + cluster.RESENDS)
    met, acts = play(CALL, says=itertools.repeat(gone), knows={RefreshSlot: redis.ConnectionError("too")})
    assert (met, len(sent(acts))) == (gone, 2)


def test_what_must_not_be_sent_again_is_not() -> None:
    """A call without receipt is retried only if no node can have executed it."""
    gone = redis.ConnectionError("gone")
    met, acts = play(steps.PlainCall([COMMAND], again=False), says=[gone])
    assert (met, len(sent(acts))) == (gone, 1)
    for refusal in (TryAgainError, MovedError, ReadOnlyError):
        assert play(steps.PlainCall([COMMAND], again=False), says=[errors(refusal), [1]])[0] == 1


@for_each("down", [ClusterDownError("CLUSTERDOWN Hash slot not served"), SlotNotCoveredError("x")])
def test_a_cluster_that_is_down_is_the_callers_to_know(down: Exception) -> None:
    """The client waits for its time limit; then the error says what to do."""
    met, acts = play(CALL, says=[down, [1]], knows={RefreshSlot: down})
    assert (met, len(sent(acts))) == (down, 1)
    meaning = replies.explained(down)
    assert isinstance(meaning, ServerRefusedError)
    assert meaning.word == "CLUSTERDOWN"
    assert play(CALL, says=[down, [1]])[0] == 1


def test_a_lost_cluster_leaves_a_doubt() -> None:
    """A client that loses a connection and then finds no node raises an unknown outcome."""
    error = RedisClusterException("Redis Cluster cannot be connected.")
    assert isinstance(replies.explained(error), ConnectionFailedError)


def test_a_connection_that_another_task_closed_is_a_lost_one() -> None:
    """The error that redis-py raises for it is not a connection error."""
    closed = AttributeError("'NoneType' object has no attribute 'writelines'")
    assert play(CALL, says=[closed, [1]])[0] == 1
    met, _ = play(CALL, says=itertools.repeat([closed]))
    assert isinstance(replies.explained(met), ConnectionFailedError)


def test_the_same_of_calls_that_share_a_connection() -> None:
    """Such calls are retried one by one; a call that must not be retried has an unknown outcome."""
    closed = AttributeError("'NoneType' object has no attribute 'writelines'")
    batch = [CALL, steps.PlainCall([COMMAND], again=False)]

    class Node:
        name = "owner"

    for met in (closed, [closed, closed]):
        knows: dict[type, Any] = {NodeToWrite: Node(), cluster.SendAll: [met]}
        (answer, doubt), _ = play(batch, says=[[1]], knows=knows)
        assert answer == 1
        assert isinstance(replies.explained(doubt), ConnectionFailedError)


def confirmed() -> steps.Call:
    """Return the step of a call that waits for a replica."""
    step = next(calls.call(ADD, [b"k", b"{k}:receipt:1"], [b"identity"], Wait(1, 100)))
    assert isinstance(step, steps.Call)
    return step


def test_a_write_is_confirmed_where_it_was_executed() -> None:
    """The call, the touch and WAIT use one connection, on whichever node."""
    step = confirmed()
    replies = [1, 1, 1]
    asked = [b"OK", 1, b"OK", 1, b"OK", 1]
    answer, acts = play(step, says=[[errors(TryAgainError)] * 3, [errors(AskError)] * 3, asked])
    assert answer == replies
    assert sent(acts) == [
        ("owner", step.commands),
        ("owner", step.commands),
        ("other", [each for command in step.commands for each in (ASKING, command)]),
    ]


def test_a_touch_that_went_astray_is_not_repeated() -> None:
    """An executed call is not retried because its slot moved before it was confirmed."""
    answer, acts = play(confirmed(), says=[[1, errors(MovedError), 0]])
    assert answer[0] == 1
    assert len(sent(acts)) == 1


PLAIN = ("EVALSHA", ADD.sha, 1, b"k", b"identity")
READ = steps.PlainCall([PLAIN], text=ADD.text)
READ_ONLY = ("EVALSHA_RO", *PLAIN[1:])


def test_a_read_goes_to_a_replica_if_the_client_reads_there() -> None:
    """The client chooses the node; one that reads from primaries sends the same as always."""
    assert sent(play(READ, says=[[1]], knows={NodeToRead: "replica"})[1]) == [("replica", [READ_ONLY])]
    assert sent(play(READ, says=[[1]])[1]) == [("owner", [PLAIN])]


def test_a_replica_is_taught_itself() -> None:
    """The script goes to the very node that lacked it, since the next read may go to another one."""
    _, acts = play(READ, says=[NoScriptError("x"), [1]], knows={NodeToRead: "replica"})
    assert sent(acts) == [
        ("replica", [READ_ONLY]),
        ("replica", [("EVAL_RO", ADD.text, *PLAIN[2:])]),
    ]


def test_reads_from_replicas_make_no_pipeline() -> None:
    """Each goes to the node that the client chooses for it, and no empty pipeline is sent."""
    answer, acts = play([READ, READ], says=[[1], [0]], knows={NodeToRead: "replica"})
    assert answer == [1, 0]
    assert {type(act) for act in acts} == {NodeToRead, Send}


@for_each(
    "refusal", ["BLOOMMISSING there is no such key", "MOVED 866 127.0.0.1:7001", "MASTERDOWN Link is down"]
)
def test_a_refusal_is_left_to_the_primary(refusal: str) -> None:
    """A replica may lag behind, and does not know of keys that have moved."""
    answer, acts = play(READ, says=[redis.ResponseError(refusal), [1]], knows={NodeToRead: "replica"})
    assert answer == 1
    assert [node for node, _ in sent(acts)] == ["replica", "owner"]


def test_a_replica_that_is_gone_makes_the_client_read_its_map() -> None:
    """Otherwise every read would try it first."""
    _, acts = play(READ, says=[redis.ConnectionError("gone"), [1]], knows={NodeToRead: "replica"})
    assert RefreshMap in map(type, acts)


def test_a_server_without_read_only_scripts_is_asked_once() -> None:
    """After that the client's reads go to the primaries."""
    client = Client()
    knows: dict[type, Any] = {NodeToRead: "replica"}
    unknown = redis.ResponseError("unknown command 'EVALSHA_RO', with args beginning with: ")
    assert play(READ, says=[unknown, [1]], knows=knows, client=client)[0] == 1
    assert sent(play(READ, says=[[1]], knows=knows, client=client)[1]) == [("owner", [PLAIN])]


def test_commands_for_several_keys_are_answered_at_their_places() -> None:
    """Without WAIT each command goes to its own key's node, and errors stay values."""
    refused = redis.ResponseError("WRONGTYPE x")
    step = steps.PlainCall([("STRLEN", b"a"), ("PTTL", b"b")], is_single=False)
    answer, acts = play(step, says=[[5], refused])
    assert answer == [5, refused]
    assert [act.key for act in acts if isinstance(act, NodeToWrite)] == [b"a", b"b"]
