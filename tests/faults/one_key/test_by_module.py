"""The guarantees of one key with the server's module: the same tests, with it as the default layout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from bloomredis import BatchInterruptedError, BloomFilter, FilterLostError, ServerRefusedError
from bloomredis.operations.kinds import plain
from bloomredis.protocol import scripts
from tests.faults.one_key import (
    test_cancelled,
    test_forks,
    test_generations,
    test_group_commit_faults,
    test_kept_answers,
    test_late_answers,
    test_refused_replays,
)
from tests.operations import test_claims
from tests.support import workloads
from tests.support.inside import inside
from tests.support.losing import losing
from tests.support.modules import MODULE, needs_module
from tests.support.servers import Server
from tests.support.values import for_each

admin = test_late_answers.admin
other = test_generations.other

test_children_with_threads_lose_nothing = test_forks.test_children_with_threads_lose_nothing
test_children_with_tasks_lose_nothing = test_forks.test_children_with_tasks_lose_nothing
test_an_item_alone = test_cancelled.test_an_item_alone
test_an_item_in_company = test_cancelled.test_an_item_in_company
test_a_pending_item_ends_with_its_filter = test_generations.test_a_pending_item_ends_with_its_filter
test_a_token_ends_with_its_filter = test_generations.test_a_token_ends_with_its_filter
test_a_pending_claim_ends_with_its_filter = test_generations.test_a_pending_claim_ends_with_its_filter
test_a_pending_commit_ends_with_its_filter = test_generations.test_a_pending_commit_ends_with_its_filter
test_a_token_is_for_its_own_item = test_generations.test_a_token_is_for_its_own_item
test_a_clear_fails_no_other_call = test_generations.test_a_clear_of_the_same_object_fails_no_other_call
test_a_clear_fails_no_call_of_many_threads = test_generations.test_a_clear_fails_no_call_of_many_threads
test_each_loss_is_told = test_generations.test_each_loss_is_told
test_equal_items = test_group_commit_faults.test_equal_items_have_tokens_of_their_own
test_claims_that_are_interrupted = test_kept_answers.test_claims_that_are_interrupted
test_a_late_reply = test_kept_answers.test_a_late_reply
test_a_token_older_than_its_reader = test_kept_answers.test_a_token_older_than_its_reader
test_a_late_answer_from_the_receipt = test_late_answers.test_a_late_answer_from_the_receipt
test_a_late_call_that_was_not_executed = test_late_answers.test_a_late_call_that_was_not_executed
test_a_late_batch = test_late_answers.test_a_late_batch
test_a_pending_item_whose_receipt_is_gone = test_late_answers.test_a_pending_item_whose_receipt_is_gone
test_the_rest_of_a_batch_whose_receipt_is_gone = (
    test_late_answers.test_the_rest_of_a_batch_whose_receipt_is_gone
)
test_a_refused_replay_is_pending = test_refused_replays.test_a_refused_replay_is_pending
test_a_refused_replay_has_a_token = test_refused_replays.test_a_refused_replay_has_a_token
test_a_refused_claim_is_held = test_refused_replays.test_a_refused_claim_is_held
test_threads_claim_each_item_once = test_claims.test_threads_claim_each_item_once
test_lost_replies_lose_no_claim = test_claims.test_lost_replies_lose_no_claim


@pytest.fixture(autouse=True)
def by_module(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Make the module's layout the default."""
    name = "server" if "server" in request.fixturenames else "any_server"
    with request.getfixturevalue(name).client() as client:
        needs_module(client)
    usual = plain.PlainOperations.__init__

    def made(self: Any, name: str, **options: Any) -> None:
        options["layout"] = options.get("layout") or "module"
        usual(self, name, **options)

    monkeypatch.setattr(plain.PlainOperations, "__init__", made)


@pytest.fixture
def direct(server: Server) -> Iterator[redis.Redis]:
    """A client of each real server in turn."""
    with server.client() as made:
        yield made


@for_each("way", [workloads.one_by_one, workloads.in_batches])
def test_lost_replies_lose_no_item(server: Server, way: Callable[..., list[bool]]) -> None:
    """With one reply in ten lost, each item is new exactly once."""
    items, errors = workloads.items_of(600), Counter[str]()
    with losing(server.socket, 0.1) as proxy, proxy.client() as lossy:
        assert way(lossy, "seen", items, errors) == [True] * len(items)
        assert proxy.lost > 1
    with server.client() as client:
        seen = BloomFilter.open(client, "seen")
        assert not any(seen.add_many(items))
        assert seen.info().layout == "module"


def test_a_copy_that_arrives_late_is_refused(direct: redis.Redis) -> None:
    """A late copy is refused, for present and absent items, alone and in a batch; the receipt stays."""
    f: Any = BloomFilter(direct, "seen", **MODULE)
    f.create()
    handle, add = inside(f).stored.handle, scripts.load_script("module_add")
    session = b"{seen}:receipt:0123456789abcdef-0"

    def call(number: int, *items: bytes) -> Any:
        packed = handle.layout.pack(items)
        return direct.eval(add.text, 2, "seen", session, handle.identity, packed, f"{number}.00000000")

    assert [call(1, b"a"), call(1, b"a"), call(2, b"b"), call(3, b"c", b"d")] == [1, 1, 1, b"\1\1"]
    kept = direct.get(session)
    for late in ((b"a",), (b"absent",), (b"a", b"absent")):
        with pytest.raises(redis.ResponseError, match="the session has gone on"):
            call(1, *late)
    assert direct.get(session) == kept
    assert call(3, b"c", b"d") == b"\1\1"
    assert not f.contains("absent")


def test_an_item_that_the_module_refuses(direct: redis.Redis) -> None:
    """The receipt records that the call had no reply, so it can be retried."""
    execute: Any = direct.execute_command
    execute("BF.RESERVE", "seen", 1e-6, 200, "NONSCALING")
    f: Any = BloomFilter.open(direct, "seen")
    handle, add = inside(f).stored.handle, scripts.load_script("module_add")
    session = b"{seen}:receipt:0123456789abcdef-0"

    def call(item: bytes, number: str) -> Any:
        packed = handle.layout.pack_one(item)
        return direct.eval(add.text, 2, "seen", session, handle.identity, packed, number)

    with pytest.raises(BatchInterruptedError):
        f.add_many(range(300))
    assert call(b"0", "49.00000000") == 0
    for _ in range(2):
        with pytest.raises(redis.ResponseError, match="BLOOMFULL"):
            call(b"one more", "50.00000000")
        assert direct.get(session) == b"50.00000000:-;"
    assert call(b"0", "50.00000000") == 0


@pytest.mark.parametrize("kept", [None, "4.00000000:1;"])
@pytest.mark.parametrize("item", [b"there", b"absent"])
def test_a_call_without_a_number_is_refused(direct: redis.Redis, item: bytes, kept: str | None) -> None:
    """A call without a number changes neither the filter nor the receipt."""
    f: Any = BloomFilter(direct, "seen", **MODULE)
    f.add("there")
    handle, session = inside(f).stored.handle, "{seen}:receipt:0123456789abcdef-0"
    if kept:
        direct.set(session, kept)
    packed = handle.layout.pack_one(item)
    with pytest.raises(redis.ResponseError, match="BLOOMARGUMENT"):
        direct.eval(scripts.load_script("module_add").text, 2, "seen", session, handle.identity, packed, "x")
    assert direct.get(session) == (kept.encode() if kept else None)
    assert not f.contains("absent")


@pytest.mark.parametrize("verb", ["module_reserve", "module_mark"])
def test_a_late_copy_of_its_creation_is_another_filter(direct: Any, verb: str) -> None:
    """A late copy of the call that created or marked a filter does not recreate it after FLUSHALL."""
    sent: list[tuple[Any, ...]] = []
    execute = direct.execute_command

    def reserved() -> None:
        if verb == "module_mark":  # created by another program
            execute("BF.RESERVE", "seen", 0.01, 1000)

    def recording(*command: Any, **options: Any) -> Any:
        sent.append(command)
        return execute(*command, **options)

    direct.execute_command = recording
    reserved()
    seen = (
        BloomFilter.open(direct, "seen") if verb == "module_mark" else BloomFilter(direct, "seen", **MODULE)
    )
    assert seen.add("a")
    script = scripts.load_script(verb)
    copy = next(each for each in sent if each[1] in (script.sha, script.text))
    execute("FLUSHALL")
    reserved()
    execute("EVAL", script.text, *copy[2:])
    with pytest.raises(FilterLostError):
        seen.add("b")


@contextmanager
def without(client: redis.Redis, server: Server, right: str) -> Iterator[redis.Redis]:
    """Yield a client of a user without one right; the rights of `client` stay."""
    execute: Any = client.execute_command
    execute("ACL", "SETUSER", "worker", "reset", "on", ">secret", "+@all", "~*", *right.split())
    with redis.Redis.from_url(server.url.replace("unix://", "unix://worker:secret@")) as worker:
        yield worker


@pytest.mark.parametrize("items", [["a"], ["a", "b"]])
def test_a_missing_right_is_met_before_an_item_is_in(
    direct: redis.Redis, server: Server, items: list[str]
) -> None:
    """A missing right for an add or its receipts fails before the item is in; only batches need SETRANGE."""
    seen = BloomFilter(direct, "seen", **MODULE)
    seen.create()
    rights = ["-bf.add -bf.madd", "-set", "-bf.mexists", "resetkeys ~seen", *["-setrange"] * (len(items) > 1)]
    for right in rights:
        with without(direct, server, right) as worker:
            f = BloomFilter(worker, "seen", **MODULE)
            with pytest.raises((ServerRefusedError, BatchInterruptedError), match="NOPERM"):
                f.add_many(items)
        assert not any(seen.contains_many(items))
    assert seen.add_many(items) == [True] * len(items)


@pytest.mark.parametrize("right", ["-bf.add", "-set", "-setrange", "-unlink"])
def test_a_commit_that_is_refused_leaves_the_claim(direct: redis.Redis, server: Server, right: str) -> None:
    """The item is not added and its claim is kept; with the right again the commit succeeds."""
    seen = BloomFilter(direct, "seen", **MODULE)
    seen.add("opened")
    with without(direct, server, "") as worker:
        claim = BloomFilter(worker, "seen", **MODULE).claim("a", lease=60)
        with without(direct, server, right), pytest.raises(ServerRefusedError, match="NOPERM"):
            claim.commit()
        assert (seen.contains("a"), seen.claim("a").state) == (False, "busy")
        with without(direct, server, ""):
            claim.commit()
    assert (seen.contains("a"), seen.claim("a").state) == (True, "done")


def test_a_clear_by_another_is_a_loss(any_client: redis.Redis) -> None:
    """A key of the module cannot say that it was cleared on purpose: calls raise until `acknowledge()`."""
    needs_module(any_client)
    f, other = (BloomFilter(any_client, "seen", **MODULE) for _ in range(2))
    assert [f.add("x"), other.add("y")] == [True, True]
    other.clear()
    for _ in range(2):
        with pytest.raises(FilterLostError):
            f.add("x")
    f.acknowledge()
    assert f.add("x")
