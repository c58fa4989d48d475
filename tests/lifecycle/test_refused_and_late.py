"""Bad files, missing rights and late copies: none of them loses data."""

from __future__ import annotations

import io
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
import redis

import bloomredis
from bloomredis import BloomFilter, FilterLostError, ScalingBloomFilter, ServerRefusedError
from bloomredis.stored.layers.record import LEAST_WIDTH, RotatingRecord
from bloomredis.stored.planning import whole
from tests.support.proxy import LateCopy, proxied
from tests.support.saving import ITEMS, KINDS, made, saved
from tests.support.servers import Server
from tests.support.values import for_each

SIZE: dict[str, Any] = {"capacity": 2000, "error_rate": 0.01}


@for_each("right", ["-set", "-pexpire", "-rename", "-setrange"])
def test_a_right_that_is_missing_leaves_the_filter_as_it_was(any_server: Server, right: str) -> None:
    """If adopt() lacks a right, the plain filter still answers, and can be adopted with the right granted."""
    with any_server.client() as admin:
        rule = ("reset", "on", "nopass", "~*", "&*", "+@all", right)
        admin.execute_command("ACL", "SETUSER", "worker", *rule)
        f = BloomFilter(admin, "seen", ttl=500, **SIZE)
        f.add_many(ITEMS)
        with any_server.client(username="worker", password="") as worker:
            with pytest.raises(ServerRefusedError):
                ScalingBloomFilter.adopt(worker, "seen")
            assert not admin.exists("{seen}:layer:0")
        assert all(f.contains_many(ITEMS))
        assert all(ScalingBloomFilter.adopt(admin, "seen").contains_many(ITEMS))


@for_each("kind", ["classic", "counting", "scaling", "sharded"])
def test_a_late_copy_changes_nothing_that_is_written(any_server: Server, kind: str) -> None:
    """A late copy of the call that allocates a string does not change the string while it is filled."""
    with any_server.client() as client, proxied(any_server.socket) as proxy:
        f = made(client, kind)
        late = LateCopy()
        calls = [late.arrive]
        proxy.plan("allocate", late)

        def progress(done: int, _: int) -> None:
            if done and calls:
                calls.pop()()

        file = io.BytesIO(saved(f))
        getattr(bloomredis, KINDS[kind][0]).restore(proxy.client(retries=3), "copy", file, progress=progress)
        assert not calls
        copy = type(f).open(client, "copy")
        assert saved(copy)[-48:-32] == saved(f)[-48:-32]  # the last bits, before the checksum
        assert copy.contains_many(ITEMS) == f.contains_many(ITEMS)


def test_a_part_has_the_number_of_its_place(any_client: redis.Redis) -> None:
    """A filter in one key has only part 0; another number is named as the fault, also in a stream."""
    data = bytearray(saved(made(any_client)))
    data[39] = 2
    with pytest.raises(ValueError, match=r"has parts \[2\] and no record"):
        BloomFilter.restore(any_client, "copy", io.BytesIO(bytes(data)))


def test_slices_that_no_filter_can_have_are_refused() -> None:
    """A slice of a microsecond, too short for any call, is refused."""
    head = whole(2000, 0.01, None, RotatingRecord.kind)
    for width in (1, LEAST_WIDTH - 1):
        data = RotatingRecord(head=head, began=(width,), newest=0, width=width, slices=4).pack()
        with pytest.raises(ValueError, match=f"4 slices of {width} microseconds"):
            RotatingRecord.parse(data)


def test_another_type_in_the_middle_is_a_loss(any_client: redis.Redis) -> None:
    """A value of another type in the filter's place counts as a loss."""
    f = BloomFilter(any_client, "seen", capacity=2_000_000, error_rate=0.01)
    f.add_many(ITEMS)

    def replace(_: int, __: int) -> None:
        any_client.delete("seen")
        any_client.rpush("seen", "x")

    with pytest.raises(FilterLostError, match="while it was read"):
        f.save(io.BytesIO(), progress=replace)


def test_a_file_keeps_its_mode_and_links_stay(any_client: redis.Redis, tmp_path: Path) -> None:
    """A symbolic link still leads to the new file; a long name works."""
    f = made(any_client)
    path, link = tmp_path / ("x" * 250), tmp_path / "link"
    path.touch(mode=0o600)
    link.symlink_to(path)
    f.save(link)
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == saved(f)
    assert sorted(tmp_path.iterdir()) == sorted([path, link])


def test_a_pipe_is_written_as_it_is(any_client: redis.Redis, tmp_path: Path) -> None:
    """It stays a pipe, and its reader gets the filter."""
    f, path, found = made(any_client), tmp_path / "pipe", list[bytes]()
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()))
    reader.start()
    f.save(path)
    reader.join(60)
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert found == [saved(f)]
