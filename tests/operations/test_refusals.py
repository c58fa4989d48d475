"""Servers that refuse, lose the filter, or have too few replicas."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import redis

from bloomredis import BloomFilter, FilterLostError, OutcomeUnknownError, ServerRefusedError
from bloomredis.protocol import forms
from tests.support.inside import handle_of, inside
from tests.support.replicas import attach, replicated
from tests.support.servers import Server
from tests.support.values import for_each

pytestmark = pytest.mark.every_server


def make(bloom: Any, client: redis.Redis, **options: Any) -> Any:
    return bloom(client, "seen", capacity=1000, error_rate=0.001, **options)


def test_out_of_memory_is_explained(bloom: Any, server: Server) -> None:
    """A refused add gives advice and changes nothing, reads work, and afterwards the item is new."""
    with server.client() as client:
        f = make(bloom, client)
        f.add("a")
        client.config_set("maxmemory", "1")
        try:
            for call, argument in ((f.add, "b"), (f.add_many, ["b", "c"])):
                client.script_flush()
                with pytest.raises(ServerRefusedError, match="maxmemory") as caught:
                    call(argument)
                assert caught.value.word == "OOM"
                assert not isinstance(caught.value, OutcomeUnknownError), "each attempt was refused"
            assert f.contains_many(["a", "b"]) == [True, False]
        finally:
            client.config_set("maxmemory", "0")
        assert f.add_many(["b", "c"]) == [True, True]


@for_each("denied", ["-evalsha", "-setrange"])
def test_a_missing_permission_is_explained(bloom: Any, server: Server, denied: str) -> None:
    """The right may be for the script's call, or for a command inside that servers do not name."""
    with server.client() as admin:
        f = make(bloom, admin)
        f.add("a")
        admin.acl_setuser("default", enabled=True, nopass=True, categories=["+@all"], commands=[denied])
        try:
            with pytest.raises(ServerRefusedError, match="ACL") as caught:
                f.add("b")
        finally:
            admin.acl_setuser("default", enabled=True, nopass=True, categories=["+@all"])
        assert caught.value.word == "NOPERM"
        assert f.add("b")


@for_each("login", [{"username": "somebody", "password": "hunter2"}, {}])
def test_a_failed_login_is_explained(bloom: Any, server: Server, login: dict[str, str]) -> None:
    """The error says what to do and does not show the password."""
    with server.client() as admin:
        admin.acl_setuser("somebody", enabled=True, passwords=["+right"], keys=["*"], categories=["+@all"])
        admin.acl_setuser("default", enabled=True, reset_passwords=True, passwords=["+right"])
        try:
            f = make(bloom, server.client(retry=None, **login))
            with pytest.raises(ServerRefusedError, match="password") as caught:
                f.add("a")
            assert caught.value.word == "NOAUTH"
            assert "hunter2" not in str(caught.value)
        finally:
            admin.acl_setuser("default", enabled=True, nopass=True, categories=["+@all"])
            admin.acl_deluser("somebody")


@pytest.mark.parametrize("lose", ["delete", "clear"])
def test_a_lost_filter_is_made_anew(
    bloom: Any, client: redis.Redis, lose: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With on_lost="recreate" calls continue, and a warning is logged."""
    f = make(bloom, client, on_lost="recreate")
    f.add("a")
    getattr(make(bloom, client), lose)()
    with caplog.at_level(logging.WARNING, "bloomredis"):
        assert f.add_many(["a", "b"]) == [True, True]
    assert "seen" in caplog.text
    assert f.contains("a")


@for_each("on_lost", ["ignore", None, 1, print])
def test_a_bad_on_lost_is_refused(on_lost: Any) -> None:
    """A bad value is refused before any I/O, with the value seen."""
    with pytest.raises(ValueError, match=f"not {on_lost!r}"):
        BloomFilter(redis.Redis(), "f", capacity=10, error_rate=0.1, on_lost=on_lost)
    with pytest.raises(ValueError, match="capacity and error_rate"):
        BloomFilter(redis.Redis(), "f", on_lost="recreate")


def test_an_evicted_filter_is_noticed(server: Server) -> None:
    """After an eviction under allkeys-lru the next call raises."""
    with server.client() as client:
        f = make(BloomFilter, client)
        f.add("a")
        used = client.info("memory")["used_memory"]
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("maxmemory", used + (1 << 20))
        try:
            for i in range(100_000):  # many, if the server still frees what an earlier test has left
                client.set(f"filler-{i}", b"x" * 10_000)
                if not client.exists("seen"):
                    break
            with pytest.raises(FilterLostError, match="evicted"):
                f.add("a")
        finally:
            client.config_set("maxmemory", "0")
            client.config_set("maxmemory-policy", "noeviction")


def test_a_write_waits_for_replicas(bloom: Any) -> None:
    """Without a replica the outcome is unknown; a retry with one gives the answer, and the replica has it."""
    with replicated() as (primary, replica), primary.client() as client, replica.client() as other:
        make(bloom, client).create()
        f = make(bloom, client, min_replicas=1, replica_timeout=0.1)
        stored = inside(f).stored
        stored.use(handle_of(stored, stored.read(forms.state(_describe(client))).header))
        with pytest.raises(OutcomeUnknownError, match="0 of 1 replicas") as caught:
            f.add("a")
        attach(primary, replica)
        f = make(bloom, client, min_replicas=1, replica_timeout=10)
        assert f.add("a", token=caught.value.token)
        assert f.add_many(["b", "a"]) == [True, False]
        assert BloomFilter.open(other, "seen").contains_many(["a", "b"]) == [True, True]


def test_a_replica_is_read_only(bloom: Any) -> None:
    """A replica answers reads, and refuses a write with advice."""
    with replicated() as (primary, replica), primary.client() as client, replica.client() as other:
        make(bloom, client).add("a")
        attach(primary, replica)
        f = bloom.open(other, "seen")
        assert f.contains("a")
        with pytest.raises(ServerRefusedError, match="primary") as caught:
            f.add("b")
        assert caught.value.word == "READONLY"


def _describe(client: redis.Redis) -> Any:
    from bloomredis.protocol import scripts

    return client.eval(scripts.load_script("describe").text, 1, "seen")


def test_a_database_that_is_not_there(bloom: Any, server: Server) -> None:
    """The error is one of this library, and says where the number is given."""
    with server.client(db=99) as client, pytest.raises(ServerRefusedError, match="give another db="):
        make(bloom, client).add("a")
