"""`bloomredis rebuild` on a real server."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from bloomredis import BloomFilter
from tests.support.commands import printed, run_command, started
from tests.support.servers import Server
from tests.support.waiting import wait_until

PLAN: Any = {"capacity": 1000, "error_rate": 0.01}


def test_lines_of_files_and_of_stdin(any_server: Server, tmp_path: Path) -> None:
    """The rebuilt filter has exactly these lines and the new parameters; parameters not given stay."""
    url, lines = ("--url", any_server.url), tmp_path / "lines"
    lines.write_bytes(b"a\nb\n")
    with any_server.client() as client:
        seen = BloomFilter(client, "seen", **PLAN)
        seen.add_many(["old", "a"])
        found = json.loads(printed("rebuild", "seen", lines, *url, "--capacity", 5000, "--json"))
        assert (found["read"], found["capacity"], found["error_rate"], found["count"]) == (2, 5000, 0.01, 2)
        assert seen.contains_many(["old", "a", "b"]) == [False, True, True]
        printed("rebuild", "seen", *url, "--error-rate", 0.001, data=b"c\n")
        assert seen.contains_many(["a", "c"]) == [False, True]
        assert (seen.info().capacity, seen.info().error_rate) == (5000, 0.001)


def test_a_command_that_is_stopped(any_server: Server) -> None:
    """A rebuild that is interrupted leaves the filter unchanged, and no other key."""
    with any_server.client() as client:
        seen = BloomFilter(client, "seen", **PLAN)
        seen.add("old")
        with started("rebuild", "seen", "--url", any_server.url) as command:
            wait_until("it begins", lambda: client.exists("{seen}:successor"))
            command.send_signal(signal.SIGTERM)
            assert command.wait(20) == 128 + signal.SIGTERM
        assert not client.exists("{seen}:successor")
        assert seen.contains("old")


def test_a_command_that_is_killed(any_server: Server) -> None:
    """After a kill others use the filter at once; the successor expires, and the filter's mark is cleared."""
    with any_server.client() as client:
        seen = BloomFilter(client, "seen", **PLAN)
        seen.add("old")
        with started("rebuild", "seen", "--url", any_server.url, "--timeout", "1s") as command:
            wait_until("it begins", lambda: client.exists("{seen}:successor"))
            command.kill()
            assert command.wait(20) == -signal.SIGKILL
        assert seen.add("meanwhile")
        wait_until("the successor expires", lambda: not client.exists("{seen}:successor"))
        assert seen.contains_many(["old", "meanwhile"]) == [True, True]
        assert not seen.add("meanwhile")
        assert client.getrange("seen", 12, 12) == b"\0"  # random bytes follow


def test_other_kinds_are_refused(any_server: Server) -> None:
    """The error names the kind of a filter that cannot be rebuilt."""
    url = ("--url", any_server.url)
    printed("create", "seen", *url, "--kind", "counting", "--capacity", 100, "--error-rate", 0.01)
    done = run_command("rebuild", "seen", *url)
    assert done.returncode == 2
    assert b"counting" in done.stderr
