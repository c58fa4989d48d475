"""The rules for users that the README gives."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def acl_rule() -> list[str]:
    """Return the ACL rule for a user of a filter named `seen`, word by word."""
    found = re.search(r"ACL SETUSER worker on >secret (.*?)\n```", README.read_text(), re.DOTALL)
    assert found
    return found[1].replace("\\\n", " ").split()


def sharded_rule() -> str:
    """Return the addition to the rule for a sharded filter."""
    found = re.search(r"A `ShardedBloomFilter` needs `(~\S+)` besides", README.read_text())
    assert found
    return found[1]
