"""The bytes of saved filters."""

from __future__ import annotations

import hashlib
import io
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

import bloomredis
from bloomredis import LocalFilter
from bloomredis.operations.whole.files import Reader
from bloomredis.stored.saved import format as saved
from tests.support.values import for_each
from tests.support.vectors import vectors

FILES = vectors("saved")["files"]
EACH_FILE = pytest.mark.parametrize("case", FILES, ids=lambda case: case["class"])


@EACH_FILE
def test_golden_files(case: dict[str, Any], tmp_path: Path) -> None:
    """Each file has its class, is packed to its bytes, and has its items."""
    data = bytes.fromhex(case["hex"])
    length, more = saved.sizes(data[: saved.HEAD_BYTES])
    found = saved.parse(data[: saved.HEAD_BYTES], data[saved.HEAD_BYTES :][:more])
    assert saved.called(found) == saved.class_of(data[: saved.KIND_BYTES]) == case["class"]
    assert data.startswith(found.preamble())
    assert length == found.num_bytes == len(data)
    (tmp_path / "file").write_bytes(data)
    assert all(LocalFilter.open(tmp_path / "file").contains_many(case["items"]))


@EACH_FILE
def test_a_file_by_the_page(case: dict[str, Any]) -> None:
    """The fields are where FORMAT.md puts them."""
    data = bytes.fromhex(case["hex"])
    magic, version, zero, length, _, record, parts = struct.unpack_from(">6sBBQQII", data)
    assert (magic, version, zero, length) == (b"bloomf", 1, 0, len(data))
    assert hashlib.sha256(data[:-32]).digest() == data[-32:]
    heads = [data[32 + record + 72 * i :][8:72] for i in range(parts)]
    assert all(head[:7] == b"bloomr\1" for head in heads)
    bits = sum(-(-int.from_bytes(head[16:24], "big") * (4 if head[10] == 4 else 1) // 8) for head in heads)
    assert 32 + record + 72 * parts + bits + 32 == length


@EACH_FILE
def test_golden_files_are_restored(any_client: redis.Redis, case: dict[str, Any]) -> None:
    """A rotating filter, whose items have expired by now, is empty."""
    f = getattr(bloomredis, case["class"]).restore(any_client, "seen", io.BytesIO(bytes.fromhex(case["hex"])))
    assert f.contains_many(case["items"]) == [case["class"] != "RotatingBloomFilter"] * len(case["items"])


@for_each(
    ("at", "byte", "complaint"),
    [
        (0, 0, "the word bloomf"),
        (6, 2, "version 2"),
        (7, 1, "no saved filter"),
        (24, 1, "a record of"),
        (28, 1, "no saved filter"),
        (31, 2, "it begins with"),
        (50, 9, "unknown to this release"),
    ],
)
def test_a_damaged_beginning_is_refused(at: int, byte: int, complaint: str) -> None:
    """Each fault is named, whatever the checksum."""
    data = bytearray(bytes.fromhex(FILES[0]["hex"]))
    data[at] = byte
    data[-32:] = hashlib.sha256(data[:-32]).digest()
    with pytest.raises(ValueError, match=complaint):
        bloomredis.BloomFilter.restore(redis.Redis(), "seen", io.BytesIO(data))


@given(
    case=st.sampled_from(FILES),
    changes=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), min_size=1),
)
def test_any_bytes_are_a_file_or_refused(case: dict[str, Any], changes: list[tuple[int, int]]) -> None:
    """Any bytes raise ValueError or are read as a file, also with the right checksum."""
    data = bytearray(bytes.fromhex(case["hex"]))
    for at, byte in changes:
        data[at % (len(data) - 32)] = byte
    data[-32:] = hashlib.sha256(data[:-32]).digest()
    with suppress(ValueError):
        Reader(io.BytesIO(data))
